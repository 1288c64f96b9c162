"""Reports on runs for an owner's page, each made by a process of its own, one at a time.

A report needs torch, and minutes; the page has neither. Its figures are of the owner's rows: they
are in this process's memory until it ends, and in no file.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit_services import python_child
from tacit_services.children.preload import die_with_parent
from tacit_services.member.answering import AnswerRefused
from tacit_services.member.report_figures import OwnReport

_SECONDS = 3600.0  # after which a report is given up
_WITHOUT_WORDS = "the process that makes it has ended without a word"


@dataclass(frozen=True, slots=True)
class ReportStanding:
    """How a report stands: `none`, `begun`, `done` or `failed`; with its figures, or why not."""

    state: str = "none"
    report: OwnReport | None = None
    why: str = ""

    def document(self) -> dict[str, Any]:
        """Return it for the page."""
        report = self.report
        return {
            "state": self.state,
            "why": self.why,
            "report": None if report is None else report.document(),
            "words": [] if report is None else report.words(),
        }


class ReportMaking:
    """The reports of one member's page. For any thread."""

    def __init__(self, folder: Path) -> None:
        """folder: the member's."""
        self._folder = folder
        self._lock = threading.Lock()
        self._standings: dict[str, ReportStanding] = {}
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def begin(self, run: str) -> ReportStanding:
        """Begin to make the report on a run, anew where there is one already.

        Raises AnswerRefused while another one is made.
        """
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                raise AnswerRefused("a report is being made; wait for its end")
            if self._closed:
                raise AnswerRefused("the page is ending")
            self._standings[run] = ReportStanding("begun")
            # A process ends with the thread that has started it: this one waits for its end.
            self._thread = threading.Thread(target=self._make, args=(run,), name="report")
            self._thread.start()
            return self._standings[run]

    def of(self, run: str) -> ReportStanding:
        """Return how the report on a run stands."""
        with self._lock:
            return self._standings.get(run, ReportStanding())

    def close(self) -> None:
        """End the process that makes a report, if there is one. Idempotent."""
        with self._lock:
            self._closed = True
            process, thread = self._process, self._thread
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
        if thread is not None:
            thread.join()

    def _make(self, run: str) -> None:
        standing = self._made(run)
        with self._lock:
            self._process = None
            self._standings[run] = standing

    def _made(self, run: str) -> ReportStanding:
        words = ["report", run, "--state", str(self._folder), "--json"]
        with self._lock:
            if self._closed:
                return ReportStanding("failed", why=_WITHOUT_WORDS)
            process = subprocess.Popen(
                python_child.command("tacit_services.cli.main", *words),
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                **_bonds(),
            )
            self._process = process
        try:
            shown, complaint = process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return ReportStanding("failed", why=f"it took more than {_SECONDS / 60:.0f} minutes")
        if process.returncode != 0:
            return ReportStanding("failed", why=_last_line(complaint))
        try:
            return ReportStanding("done", OwnReport.of(json.loads(shown)))
        except (ValueError, KeyError, TypeError, AttributeError):
            return ReportStanding("failed", why=_WITHOUT_WORDS)


def _bonds() -> dict[str, Any]:
    """Return what ties the process to this one; nothing does where POSIX is not."""
    if os.name != "posix":
        return {}
    return {"start_new_session": True, "preexec_fn": die_with_parent}


def _last_line(complaint: str) -> str:
    lines = complaint.strip().splitlines()
    return lines[-1].removeprefix("tacit: ") if lines else _WITHOUT_WORDS
