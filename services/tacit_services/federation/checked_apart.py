"""Runs that were submitted, checked in a process of its own each.

The host has the keys of a federation. It neither imports an algorithm of others nor builds a model,
and what ends the process of a check does not end the host. That process has torch already.
"""

from __future__ import annotations

from pathlib import Path

from tacit.errors import ConfigError
from tacit_services.children.preload import answer_of
from tacit_services.federation.run_facts import RunFacts

_CHECK = "tacit_services.federation.offer_check"
_LOG = "check.log"


def checked_apart(data: Path | None, folder: Path) -> RunFacts:
    """Return the facts of the run in `folder`. data: the folder of published test sets.

    Raises ConfigError where it cannot be run, ServiceError where the check itself is ended.
    """
    answer = answer_of(_CHECK, folder / _LOG, str(folder), "" if data is None else str(data))
    if "wrong" in answer:
        raise ConfigError(answer["wrong"])
    return RunFacts(**answer["facts"])
