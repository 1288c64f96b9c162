"""The rules of an organisation's own broker, in a file that its administrator brings there."""

from __future__ import annotations

import logging
from pathlib import Path

from tacit_services.disk import files
from tacit_services.enrollment.acl import acl_of_federation
from tacit_services.federation.file_rules import FileRules
from tacit_services.federation.kept_rules import KeptRules

log = logging.getLogger("tacit.federation")
ACL = "acl"


class StatedRules(FileRules):
    """Who may talk in which run, written anew as an `acl_file` at every change.

    Nothing is changed in the broker: its administrator brings the file there. The methods are those
    of `BrokerRules`.
    """

    def __init__(self, folder: Path) -> None:
        """folder: FOLDER/broker, which gets the file `acl`."""
        super().__init__(KeptRules(folder))
        self._path = folder / ACL
        self._write()

    def open_run(self, run: str) -> None:
        """Let the aggregator of `run` talk to the members that are let in."""
        super().open_run(run)
        self._write()

    def open(self, run: str, member_id: str) -> None:
        """Let a member write and read its own topics of `run`, and nothing else of it."""
        super().open(run, member_id)
        self._write()

    def close(self, run: str, member_id: str) -> None:
        """Take this back, as soon as the broker has the file."""
        super().close(run, member_id)
        self._write()

    def close_run(self, run: str) -> None:
        """Take all rules of `run` back, as soon as the broker has the file."""
        super().close_run(run)
        self._write()

    def disconnect(self, member_id: str) -> None:
        """End a member's rights in all runs, as soon as the broker has the file."""
        super().disconnect(member_id)
        self._write()

    def _write(self) -> None:
        text = acl_of_federation(self.runs()).encode()
        if not self._path.is_file() or self._path.read_bytes() != text:
            files.write(self._path, text, files.PUBLIC)
            log.info("the broker's rules have changed: it must read %s anew", self._path)
