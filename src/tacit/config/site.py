"""What a run file of a federation leaves to each member: where its rows are, and how many.

A federation's run file has no `data.train`. A member's own file stands for it, wherever that lies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.known_data.owned import EDGE

MOST_MEMBERS = 10_000  # of a federation: every number below it fits into every run
_READER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_MEMBERS_OWN = {
    "train": "a member's --data stands for it",
    "name": "a member's --name stands for it",
    "apart_from": "a member's owner says it",
    "spare": "every member of a federation has a place",
}


@dataclass(frozen=True, slots=True)
class Site:
    """A member's own part of a run.

    number: the member's in its federation. data: its file or folder of rows. rows: n_public that
    the member states, or None for the run's. name: whose the data is, or None for the path.
    apart_from: names of ledgers that are of other people. reader: the owner's own code
    ("module:name", in the folder `data`) that gives the rows, or None for tacit's own.
    published: whether the member has no rows of its own, and `data` is a folder of published data
    sets, of which it works on its part.
    """

    number: int
    data: Path
    rows: int | None = None
    name: str | None = None
    apart_from: tuple[str, ...] = ()
    reader: str | None = None
    published: bool = False

    def of(self, data: str, here: Path) -> Site:
        """Return the site with the data that an owner names: a file, a folder, or "module:name".

        here: the folder that a relative name and a module are in.
        """
        if _READER.fullmatch(data) and not (here / data).exists():
            return replace(self, data=here, reader=data)
        return replace(self, data=here / data, reader=None)


def members_own_in(data: Mapping[str, Any]) -> list[str]:
    """Return a complaint about each key of a [data] section that is a member's own."""
    return [
        f"data.{key}: {whose}; leave it out" for key, whose in _MEMBERS_OWN.items() if key in data
    ]


def of_federation(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a [data] section of own rows, without `train`, as members fill it.

    Each has a file of its own. Raises ConfigError for keys that are a member's own.
    """
    if complaints := members_own_in(data):
        raise ConfigError("; ".join(complaints))
    return {**data, "train": EDGE, "spare": MOST_MEMBERS}


def without_keys_of_members(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a [data] section without the keys that are a member's own."""
    return {key: value for key, value in data.items() if key not in _MEMBERS_OWN}


def without_members_own(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a [data] section without what is a member's own, or the host's test set.

    Columns become a list: their order is that of a row's numbers, and JSON's objects have none.
    """
    shown = without_keys_of_members(data)
    shown.pop("test", None)
    if "columns" in shown:
        shown["columns"] = [[name, keys] for name, keys in shown["columns"].items()]
    return shown


def with_columns(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a [data] section that `without_members_own` has written, as a run file has it.

    Raises ConfigError for columns that are no such list.
    """
    pairs = data.get("columns")
    if pairs is None:
        return dict(data)
    columns: dict[str, Any] = {}
    for pair in pairs if isinstance(pairs, list | tuple) else [None]:
        if not (isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise ConfigError("data.columns: expected a list of names and keys")
        if pair[0] in columns:
            raise ConfigError(f"data.columns: {pair[0]!r} stands there twice")
        columns[pair[0]] = pair[1]
    return {**data, "columns": columns}
