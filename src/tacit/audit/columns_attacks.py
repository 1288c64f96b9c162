"""The audit's test G of own columns: who is public by whose word, and whom a party has.

A hostile label holder writes the roster. It calls private people public, to get their columns
without noise, and looks for people whom the party does not have.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.algorithms.vafl.columns_party import ColumnsParty
from tacit.algorithms.vafl.step_rules import Protocol
from tacit.audit.attacked_party import FEATURES, SALT, TABLE, WIDTH, features, heard
from tacit.audit.statistics import Finding, uneven
from tacit.audit.subject import DELTA, EDGE, Randomness
from tacit.datasets.alignment import align_or_blank, names
from tacit.models.zoo.embedding_networks import of_columns
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.simulated import SimulatedLedger
from tacit.privacy.noise.mechanisms import gaussian
from tacit.privacy.release.embeddings import EmbeddingPlan, EmbeddingReleaser, clip_rows
from tacit.protocol.vertical import Roster

PLAN = EmbeddingPlan("cached", 1.0, 1.0, 1e12, DELTA)
_PLACES = (1.0,) * FEATURES, (0.0,) * FEATURES


class BelievesRoster(ColumnsParty):
    """A mutant: people that the roster tests on are public, though the private file has them."""

    def _aligned(self, roster: Roster) -> NDArray[np.int64]:
        return align_or_blank(roster.names, self._names, self.edge)


class BareBlanks(EmbeddingReleaser):
    """A mutant: a blank needs no noise, since it says nothing of anybody's columns."""

    def _noisy(self, embeddings: torch.Tensor, count: int) -> torch.Tensor:
        h = clip_rows(embeddings.detach(), self.plan.bound)
        noisy = gaussian(h.flatten(), self.plan.std, self.random).float().view_as(h)
        return torch.where(h == 0, h, noisy)


def _attacked(
    source: Randomness,
    party: type[ColumnsParty] = ColumnsParty,
    releaser: type[EmbeddingReleaser] = EmbeddingReleaser,
) -> ColumnsParty:
    """Return a party with TABLE private people, 0, 1, 2, …, who all have the same columns."""
    random = source.random()
    ledger = Ledger(":memory:", "audit") if random.secret else SimulatedLedger()
    door = releaser(PLAN, ledger, random, TABLE)
    x = features(1.0, TABLE, everybody=True)
    ids = names(map(str, range(TABLE)), SALT, EDGE)
    network = of_columns(_PLACES, FEATURES, max(WIDTH, FEATURES))
    protocol = Protocol(1, TABLE)
    return party(EDGE, 0, protocol, x, ids, network, door, private=TABLE)


def _table(victim: ColumnsParty, people: range, records: int) -> torch.Tensor:
    """Return what the server reads of these people, of whom it trains on the first `records`."""
    roster = Roster(names(map(str, people), SALT, "server"), records)
    vector = heard(victim.on_message(roster)).vector
    return vector.view(len(people), -1).double()


def called_public(
    source: Randomness, party: type[ColumnsParty] = ColumnsParty, name: str = "own columns"
) -> list[Finding]:
    """Call half of a party's private people public, and count the numbers that come of them (G)."""
    half = TABLE // 2
    differing = int((_table(_attacked(source, party), range(TABLE), half)[half:] != 0).sum())
    honest = party is ColumnsParty
    return [Finding("party, called public", name, "numbers", 0, differing, differing > 0, honest)]


def sought(
    source: Randomness,
    releaser: type[EmbeddingReleaser] = EmbeddingReleaser,
    name: str = "own columns",
) -> list[Finding]:
    """Name people whom a party lacks, and compare what comes of them with the noise (G)."""
    half = TABLE // 2
    blanks = _table(_attacked(source, releaser=releaser), range(half, TABLE + half), TABLE)[half:]
    worst, wrong = uneven(blanks, PLAN.std)
    honest = releaser is EmbeddingReleaser
    return [Finding("party, sought", name, "std/claim", 1.0, worst, bool(wrong), honest)]


def columns_tests(source: Randomness, *, mutants: bool) -> list[Finding]:
    """Run all tests of own columns, and the mutants if they are wanted."""
    findings = called_public(source) + sought(source)
    if mutants:
        findings += called_public(source, BelievesRoster, "MUTANT the roster says who is public")
        findings += sought(source, BareBlanks, "MUTANT blanks without noise")
    return findings
