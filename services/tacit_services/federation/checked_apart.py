"""Runs that were submitted, checked in a process of its own each.

The host has the keys of a federation. It neither imports an algorithm of others nor builds a model,
and what ends the process of a check does not end the host. That process has torch already, and
limits.
"""

from __future__ import annotations

from pathlib import Path

from tacit.errors import ConfigError
from tacit_services.children.child_limits import ChildLimits
from tacit_services.children.preload import answer_of
from tacit_services.federation.run_facts import RunFacts

_CHECK = "tacit_services.federation.offer_check"
_LOG = "check.log"
_LIMITS = ChildLimits.of_machine(seconds=600.0)  # a public test set is read, which may be large


def checked_apart(data: Path | None, folder: Path) -> RunFacts:
    """Return the facts of the run in `folder`. data: the folder of published test sets.

    Raises ConfigError where it cannot be run, LimitPassed where that takes more than a check may
    take, ServiceError where the check itself is ended.
    """
    place = "" if data is None else str(data)
    answer = answer_of(_CHECK, folder / _LOG, str(folder), place, limits=_LIMITS)
    if "wrong" in answer:
        raise ConfigError(answer["wrong"])
    return RunFacts(**answer["facts"])
