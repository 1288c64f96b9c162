"""The gate: what is kept as files, and what two trees make of the same runs on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from golden.differences import differences
from golden.runs import Runs, Table
from golden.trees import ROOT, Child, Failed, Tree

KEPT = ROOT / "golden" / "kept"
KINDS = (
    "commands",
    "envelopes",
    "epsilon",
    "fingerprints",
    "metrics",
    "rest",
    "run-file",
    "snapshots",
    "summaries",
    "topics",
)
CLOSE = ("epsilon",)  # kinds whose numbers may differ in their last digits
FAILED = "failed"  # the key of an answer that did not come
Found = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """A question that both trees are asked."""

    name: str
    what: str
    table: Table


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be compared: kinds of kept files, jobs, and names of runs over MQTT."""

    kinds: Sequence[str] = ()
    jobs: Sequence[Job] = ()
    mqtt: Sequence[str] = ()


class Gate:
    """Two trees, a process for each. `left_out`: jobs whose data is not here."""

    def __init__(
        self, older: Tree | Child, newer: Tree, folder: Path, root: str | None = None
    ) -> None:
        """`older`: a process, which somebody else ends, or a tree. `folder`: for journals and logs;
        `root`: of the data.
        """
        self._folder, self._root, self._experiments = folder, root, newer.path / "experiments"
        self._figures = newer.path / "lab" / "figures"
        self.runs = Runs(self._experiments)
        self.older = older if isinstance(older, Child) else Child(older, folder / "older")
        self.newer = Child(newer, folder / "newer")
        self._own = [child for child in (self.older, self.newer) if child is not older]
        self.left_out: list[str] = []
        self._said = Lock()

    def close(self) -> None:
        """End the processes."""
        for child in self._own:
            child.close()

    def differences(self, work: Work) -> list[str]:
        """Return one line for each difference. The trees work side by side.

        The older one receives while the newer one reads files.
        """
        with ThreadPoolExecutor(2) as pool:
            older = pool.submit(
                lambda: (self._received(work.mqtt), self._asked(self.older, work.jobs))
            )
            newer = pool.submit(
                lambda: (list(self._kept(work.kinds)), self._asked(self.newer, work.jobs))
            )
            (received, was), (found, now) = older.result(), newer.result()
        for job in work.jobs:
            found += _compared(job.name, was[job.name], now[job.name])
        for name in work.mqtt:
            found += _compared(
                f"over MQTT {name}", received[name], self._over_mqtt(self.newer, "again", name)
            )
        return found

    # -- kept as files -----------------------------------------------------------------------------

    def found(self, kinds: Sequence[str]) -> Iterator[tuple[str, Found]]:
        """Kind and content of what is kept as files, as the newer tree has it."""
        tables = self.runs.tables
        more: dict[str, dict[str, Any]] = {"fingerprints": {"folder": str(self._experiments)}}
        named = {"snapshots": self.runs.quick, "summaries": self.runs.summaries}
        more |= {
            kind: {"tables": {name: tables[name] for name in names}}
            for kind, names in named.items()
        }
        for kind in kinds:
            yield (
                kind,
                self._answer(self.newer, f"kept {kind}", "kept", kind=kind, **more.get(kind, {})),
            )

    def _kept(self, kinds: Sequence[str]) -> Iterator[str]:
        for kind, now in self.found(kinds):
            path = KEPT / f"{kind}.json"
            was = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            yield from _compared(f"kept {kind}", was, now, exact=kind not in CLOSE)

    # -- compared on this machine ------------------------------------------------------------------

    def jobs(self, *, quick: bool) -> list[Job]:
        """The runs and points that both trees make; quick: one run for each algorithm name.

        Raises Failed.
        """
        tables = self.runs.tables
        wanted = [
            Job(f"{what.replace('_', ' ')} {name}", what, tables[name])
            for name in (self.runs.quick if quick else tables)
            for what in ("simulated", "in_process")
            if what == "in_process" or not _refused(tables[name])
        ]
        points = {} if quick else self.newer.ask("points", folder=str(self._figures))
        return self._possible(
            [*wanted, *(Job(f"figure {name}", "measured", table) for name, table in points.items())]
        )

    def _possible(self, wanted: list[Job]) -> list[Job]:
        """Those whose data is here; under CI, which has it all, Failed if there are others."""
        needed = {job.name: job.table["data"]["dataset"] for job in wanted}
        there = self.newer.ask("available", names=sorted(set(needed.values())), root=self._root)
        self.left_out = [name for name, dataset in needed.items() if dataset not in there]
        if self.left_out and os.environ.get("CI"):
            missing = sorted(set(needed.values()) - set(there))
            raise Failed(
                f"TACIT_DATA={self._root}: has no {', '.join(missing)}, which CI must have"
            )
        return [job for job in wanted if job.name not in self.left_out]

    def _asked(self, child: Child, jobs: Sequence[Job]) -> dict[str, Found]:
        return {
            job.name: self._answer(child, job.name, job.what, table=job.table, root=self._root)
            for job in jobs
        }

    def _received(self, names: Sequence[str]) -> dict[str, Found]:
        return {name: self._over_mqtt(self.older, "over_mqtt", name) for name in names}

    def _over_mqtt(self, child: Child, what: str, name: str) -> Found:
        files = {kind: str(self._folder / f"{name}.{kind}") for kind in ("journal", "diary")}
        return self._answer(child, f"over MQTT {name}", what, table=self.runs.tables[name], **files)

    def _answer(self, child: Child, name: str, what: str, **given: Any) -> Found:
        began = time.monotonic()
        try:
            found: Found = child.ask(what, **given)
        except Failed as failed:
            found = {FAILED: str(failed)}
        if child is self.newer:
            with self._said:
                print(f"{name}: {_sha256(found)}, {time.monotonic() - began:.1f} s", flush=True)
        return found


def write(path: Path, found: Found) -> None:
    """One kept file."""
    path.write_text(
        json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def _refused(table: Table) -> bool:
    """Whether `tacit simulate` refuses the run: a trusted aggregator's."""
    return bool(table.get("privacy", {}).get("noise_at") == "server")


def _compared(name: str, was: Found, now: Found, *, exact: bool = True) -> Iterator[str]:
    for tree, found in (("older", was), ("newer", now)):
        if FAILED in found:
            yield f"{name}: the {tree} tree failed: {found[FAILED]}"
    if FAILED not in was | now:
        yield from differences(was, now, name, exact=exact)


def _sha256(found: Found) -> str:
    """The beginning of the SHA-256 of all that was found, for people: compared is all of it."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]
