"""What each message is asked before it may enter the journal, as the run's definition has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tacit.config.definition import Definition
from tacit_services.aggregator.ingest.base_versions import BaseVersions, NoBaseCheck
from tacit_services.aggregator.ingest.control_messages import ControlMessages
from tacit_services.aggregator.ingest.definition_check import DefinitionCheck
from tacit_services.aggregator.ingest.end_claims import EndClaims, NoEndCheck
from tacit_services.aggregator.ingest.ledger_continuity import LedgerContinuity


@dataclass(frozen=True, slots=True)
class Checks:
    """One object for each question; those that a run does not need accept every message.

    continuity: does the edge's ledger go on from where it was? definition: has the edge the same
    run? base_versions: can it have worked on that model? end_claims: do most peers report the end?
    control_messages: are there too many bytes without an update, to be read or to be kept?
    """

    continuity: LedgerContinuity
    definition: DefinitionCheck
    base_versions: BaseVersions
    end_claims: EndClaims
    control_messages: ControlMessages


def checks(run: Definition[Any], dataset: str, clock: Callable[[], float]) -> Checks:
    """Return the checks of a run. dataset: whose ledgers its edges keep."""
    return Checks(
        LedgerContinuity(dataset),
        DefinitionCheck(run.agreed),
        BaseVersions() if run.traits.in_turn else NoBaseCheck(),
        EndClaims(run.horizon) if run.algorithm.worker == "peer" else NoEndCheck(run.horizon),
        ControlMessages(clock),
    )
