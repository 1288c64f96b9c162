"""The shortened runs: the files of experiments/ with what golden/runs.toml says instead."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

Table = dict[str, Any]
RULES = Path(__file__).parent / "runs.toml"


class Runs:
    """The shortened runs of one tree, by name.

    A name is of a file of experiments/, or one of `also` in the rules.
    """

    def __init__(self, experiments: Path) -> None:
        self._rules = _read(RULES)
        self.quick: list[str] = self._rules["quick"]
        self.mqtt: list[str] = self._rules["mqtt"]
        self.summaries: list[str] = self._rules["summaries"]
        files = {path.stem: _read(path) for path in sorted(experiments.glob("*.toml"))}
        tables = {
            name: self._shortened(table, self._rules["file"].get(name, {}))
            for name, table in files.items()
        }
        for name, rule in self._rules["also"].items():
            changes = {section: keys for section, keys in rule.items() if section != "like"}
            tables[name] = self._shortened(files[rule["like"]], changes)
        self.tables: dict[str, Table] = dict(sorted(tables.items(), key=_by_dataset))

    def _shortened(self, table: Table, changes: Table) -> Table:
        name = merged(table, changes)["algorithm"]["name"]
        return merged(
            merged(merged(table, self._rules["all"]), self._rules["algorithm"][name]), changes
        )


def merged(table: Table, changes: Table) -> Table:
    """`table` with the keys of `changes`, section by section."""
    return table | {section: table.get(section, {}) | keys for section, keys in changes.items()}


def _by_dataset(item: tuple[str, Table]) -> tuple[str, str]:
    """Those of one dataset one after the other: it is loaded once."""
    return item[1]["data"]["dataset"], item[0]


def _read(path: Path) -> Table:
    return tomllib.loads(path.read_text(encoding="utf-8"))
