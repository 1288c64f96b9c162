"""Follows a value through the functions of a tree, while they run.

What a stop is, and when a walk turns back, stands in bench/house/__init__.py.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Protocol

from torch import Tensor
from torch.overrides import TorchFunctionMode

DEPTH = 4  # of containers and dataclasses that are looked into
LONGEST = 256  # of a container
SHORTEST = 64  # bytes that are recognised by what they are
_BYTES = bytes | bytearray | memoryview
_INNER = re.compile(r"(\.<locals>)?\.<(listcomp|genexpr|dictcomp|setcomp)>")  # part of a function


@dataclasses.dataclass(frozen=True, slots=True)
class Function:
    """A function of the tree, by its file (relative to the tree) and its qualified name."""

    file: str
    name: str


Began = Callable[[Function, str, tuple[object, ...]], object]


class Value(Protocol):
    """What is followed."""

    def carried(self, thing: object) -> bool:
        """Whether `thing` is the value, or holds it."""

    def made(self, thing: object) -> None:
        """`thing` came from a function, or is an object, that was given the value."""

    def forget(self) -> None:
        """What was made so far."""


class Typed:
    """A value that is known by its type, wherever it is: a run file, its sections, settings.

    A record that is made of it (a frozen dataclass of plain values) is a copy of it, under other
    names, and is followed as well; not one of the `other` kinds.
    """

    def __init__(self, kinds: tuple[type, ...], other: tuple[type, ...] = ()) -> None:
        self._kinds, self._other = kinds, other
        self._records: dict[int, object] = {}  # by id, which stays theirs as they are held

    def carried(self, thing: object) -> bool:
        """Also in a container or a dataclass."""
        return self._carried(thing, DEPTH)

    def made(self, thing: object) -> None:
        """A record is followed from now on; what else is computed from a setting is not."""
        if _record(thing) and not isinstance(thing, self._other):
            self._records[id(thing)] = thing
        elif isinstance(thing, tuple | list):
            for item in thing[:LONGEST]:
                self.made(item)

    def forget(self) -> None:
        """No record."""
        self._records = {}

    def _carried(self, thing: object, depth: int) -> bool:
        if isinstance(thing, self._kinds) or id(thing) in self._records:
            return True
        return depth > 0 and any(self._carried(item, depth - 1) for item in _inside(thing))


class Traced:
    """A value that is known by identity, and all that is made of it; bytes, by what they are.

    Bytes in pieces, as an envelope is whose tensor stays where it is, are known put together, too.
    """

    def __init__(self) -> None:
        self._held: dict[int, object] = {}  # by id, which stays theirs as they are held
        self._bytes: set[int] = set()

    def carried(self, thing: object) -> bool:
        """Also in a container or a dataclass."""
        return self._carried(thing, DEPTH)

    def made(self, thing: object) -> None:
        """From now on it is followed too, unless it is a plain value."""
        if isinstance(thing, _BYTES):
            if len(thing) >= SHORTEST:
                self._bytes.add(hash(bytes(thing)))
        elif isinstance(thing, tuple | list):
            for item in thing[:LONGEST]:
                self.made(item)
        elif thing is not None and not isinstance(thing, bool | int | float | str | type):
            self._held[id(thing)] = thing
            inside = list(_inside(thing))
            pieces = [each for each in inside if isinstance(each, _BYTES)]
            if pieces and len(pieces) == len(inside):
                self.made(b"".join(pieces))

    def forget(self) -> None:
        """Follow nothing."""
        self._held, self._bytes = {}, set()

    def _carried(self, thing: object, depth: int) -> bool:
        if isinstance(thing, _BYTES):
            return len(thing) >= SHORTEST and hash(bytes(thing)) in self._bytes
        if id(thing) in self._held:
            return True
        return depth > 0 and any(self._carried(item, depth - 1) for item in _inside(thing))


class Operations(TorchFunctionMode):
    """Lets what torch computes from a traced tensor be traced, too."""

    def __init__(self, value: Traced) -> None:
        super().__init__()
        self._value = value

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As torch has it."""
        given = kwargs or {}
        result = func(*args, **given)
        kinds = (Tensor, tuple, list)
        operands = [item for item in (*args, *given.values()) if isinstance(item, kinds)]
        if self._value.carried(operands):
            self._value.made(result)
        return result


class Follower:
    """Notes the functions of `tree` that are handed `value`, or read of it, in their order."""

    def __init__(self, tree: Path, value: Value, began: Began = lambda *_: None) -> None:
        """`began` says of a function, "call" or "return", and its objects: this is the value."""
        self.steps: list[Function] = []
        self.ended: Callable[[Function], bool] = lambda _: False  # of a function that is handed it
        self.over = False
        self._began = began
        self._tree, self._value = str(tree) + "/", value
        self._seen: set[tuple[Function | None, Function]] = set()
        self._given: set[int] = set()  # frames that have been handed the value
        self._known: dict[CodeType, Function | None] = {}

    def __enter__(self) -> Follower:
        threading.setprofile(self._event)
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def read(self, frame: FrameType | None) -> None:
        """An attribute of the value is read in `frame`."""
        if frame is not None and self._function(frame.f_code) is not None:
            self._note(frame)

    def _event(self, frame: FrameType, event: str, given: object) -> None:
        if self.over or event not in ("call", "return"):
            return
        function = self._function(frame.f_code)
        if function is None:
            return
        if event == "call":
            self._call(frame, function)
        else:
            self._return(frame, function, given)

    def _call(self, frame: FrameType, function: Function) -> None:
        arguments = tuple(_arguments(frame))
        if (source := self._began(function, "call", arguments)) is not None:
            self._restart(source)
        if any(self._value.carried(each) for each in arguments):
            self._given.add(id(frame))
            self._note(frame)
            self.over = self.over or self.ended(function)

    def _return(self, frame: FrameType, function: Function, result: object) -> None:
        if (source := self._began(function, "return", (result,))) is not None:
            self._restart(source)
            self._note(frame)
        if id(frame) in self._given:
            self._given.discard(id(frame))
            self._value.made(result)
            if frame.f_code.co_name == "__init__":
                self._value.made(frame.f_locals.get("self"))
        caller = frame.f_back
        if caller is None or self._function(caller.f_code) is None:
            return
        if self._value.carried(result):
            self._given.add(id(caller))
            self._note(caller)

    def _restart(self, source: object) -> None:
        """Another beginning: what was followed so far came to nothing."""
        self.steps, self._seen, self._given = [], set(), set()
        self._value.forget()
        self._value.made(source)

    def _note(self, frame: FrameType) -> None:
        function = self._function(frame.f_code)
        assert function is not None
        pair = (self._caller(frame, function), function)
        if pair not in self._seen and not self.over:
            self._seen.add(pair)
            self.steps.append(function)

    def _caller(self, frame: FrameType, function: Function) -> Function | None:
        """The nearest other function of the tree below it on the stack."""
        below = frame.f_back
        while below is not None:
            found = self._function(below.f_code)
            if found is not None and found != function:
                return found
            below = below.f_back
        return None

    def _function(self, code: CodeType) -> Function | None:
        if code not in self._known:
            self._known[code] = self._named(code)
        return self._known[code]

    def _named(self, code: CodeType) -> Function | None:
        name = _INNER.sub("", code.co_qualname).replace(".<locals>", "")
        if not code.co_filename.startswith(self._tree) or name.startswith("<"):
            return None
        file = code.co_filename.removeprefix(self._tree)
        return None if "/_pb/" in file or file.startswith((".", "bench/")) else Function(file, name)


def _arguments(frame: FrameType) -> Iterable[object]:
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    names, found = code.co_varnames[:count], frame.f_locals
    return [found[name] for name in names if name in found]


def _record(thing: object) -> bool:
    """Whether it is a frozen dataclass of plain values, and of such."""
    parameters = getattr(type(thing), "__dataclass_params__", None)
    return parameters is not None and parameters.frozen and all(map(_plain, _inside(thing)))


def _plain(thing: object) -> bool:
    if isinstance(thing, tuple):
        return all(map(_plain, thing))
    return isinstance(thing, bool | int | float | str | bytes | Path | None) or _record(thing)


def _inside(thing: object) -> Iterable[object]:
    if isinstance(thing, tuple | list | set | frozenset):
        return list(thing)[:LONGEST]
    if isinstance(thing, dict):
        return list(thing.values())[:LONGEST]
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return [getattr(thing, field.name, None) for field in dataclasses.fields(thing)]
    return ()
