"""The complaint about a wrong run file: pydantic's errors in one line."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from tacit import shown
from tacit.config.algorithm_contract import AlgorithmSection
from tacit.config.algorithm_entries import settings_classes

_LONGEST_KEY = 200  # characters
_Location = tuple[int | str, ...]
_TAGGED = (("data",), ("algorithm", "edge"))  # sections whose class the key `kind` chooses
_FORMS = ("column", "labels", "event", "next token", "number", "tokens")
_TARGETS = tuple((form,) for form in _FORMS)  # forms of a target, which are no keys


def one_line(error: ValidationError, root: type[BaseModel]) -> str:
    """Return all problems of a `root` in one line, each with its field and value."""
    return "; ".join(faults(error, root))


def faults(error: ValidationError, root: type[BaseModel]) -> list[str]:
    """Return the problems of a `root`, each in one line with its field and value.

    pydantic's own text is a page long.
    """
    problems = []
    for item in error.errors(include_url=False):
        field = _shown(_location(item["loc"])) or "run file"
        message = item["msg"].removeprefix("Value error, ")
        value = item["input"]
        if isinstance(value, dict | BaseModel):
            suffix = ""
        else:
            suffix = f"={shown.quoted(value)}"
        if item["type"] == "extra_forbidden":
            message = f"unknown key{_meant(root, _location(item['loc']))}"
        elif item["type"] == "missing":
            suffix = ""
        elif item["type"] == "union_tag_invalid":
            field = f"{field}.kind"
            suffix = f"={shown.quoted(item['ctx']['tag'])}"
            message = f"is not known; use one of: {item['ctx']['expected_tags']}"
        elif item["type"] == "union_tag_not_found":
            field = f"{field}.kind"
            message = "Field required"
        problems.append(
            message if field == "run file" and not suffix else f"{field}{suffix}: {message}"
        )
    return problems


def _shown(location: _Location) -> str:
    """Return the name of a key, which its writer chooses, as it is shown in a line."""
    name = ".".join(map(str, location))
    return shown.printable(name, _LONGEST_KEY) + ("…" if len(name) > _LONGEST_KEY else "")


def _meant(root: type[BaseModel], location: _Location) -> str:
    """Return a hint at the key that was probably meant by the unknown one at `location`."""
    kinds: list[type[BaseModel]] = [root]
    for name in location[:-1]:
        kinds = [
            section
            for kind in kinds
            if name in kind.model_fields
            for section in sections_of(kind, str(name))
        ]
    keys = {name for kind in kinds for name in kind.model_fields}
    if location[-1] in keys:  # it is a key of another algorithm
        return ": it belongs to another " + str(location[-2] if len(location) > 1 else "section")
    close = get_close_matches(str(location[-1]), sorted(keys), 1)
    if close:
        return f"; did you mean {close[0]}?"
    return ""


def sections_of(kind: type[BaseModel], name: str) -> list[type[BaseModel]]:
    """Return the classes of sections that key `name` of `kind` may hold; none for a plain value."""
    todo: list[Any] = [kind.model_fields[name].annotation]
    sections: list[type[BaseModel]] = []
    while todo:
        annotation = todo.pop(0)
        if annotation is AlgorithmSection:
            sections.extend(settings_classes())
            continue
        todo.extend(get_args(annotation))
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            sections.append(annotation)
    return sections


def _location(location: _Location) -> _Location:
    # The kind that chose the section's class is not a key of the file.
    for section in _TAGGED:
        if location[: len(section)] == section:
            location = section + location[len(section) + 1 :]
    if location[:2] == ("data", "target") and location[2:3] in _TARGETS:
        return location[:2] + location[3:]
    return location
