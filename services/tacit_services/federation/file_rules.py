"""The rules of a federation's broker that reads them from the disk at every message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tacit_services.federation.kept_rules import KeptRules


class FileRules:
    """Who may talk in which run, where the broker reads it from the kept rules.

    The methods are those of `BrokerRules`.
    """

    def __init__(self, kept: KeptRules) -> None:
        self._kept = kept

    def open_run(self, run: str) -> None:
        """Let the aggregator of `run` talk to the members that are let in."""
        self._kept.add(run)

    def open(self, run: str, member_id: str) -> None:
        """Let a member write and read its own topics of `run`, and nothing else of it."""
        self._kept.add(run, member_id)

    def close(self, run: str, member_id: str) -> None:
        """Take this back: from now on nothing of `run` passes to or from this member."""
        self._kept.remove(run, member_id)

    def close_run(self, run: str) -> None:
        """Take all rules of `run` back, its aggregator's too."""
        self._kept.remove(run)

    def disconnect(self, member_id: str) -> None:
        """End a member's rights in all runs: it was revoked."""
        self._kept.remove_member(member_id)

    def runs(self) -> Mapping[str, Sequence[str]]:
        """Return the members that are let in, by run."""
        return self._kept.runs()

    def stop(self) -> None:
        """Do nothing: there is no connection."""
