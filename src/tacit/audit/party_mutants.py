"""Vertical parties with one defect each, and test G of all parties: honest ones and mutants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from tacit.audit.attacked_party import (
    Attack,
    AttackedParty,
    again,
    asked,
    attacked,
    learned,
    stepped,
    tabled,
    unlike,
)
from tacit.audit.statistics import Finding
from tacit.audit.subject import Randomness
from tacit.privacy.noise.mechanisms import gaussian
from tacit.privacy.release.embeddings import EmbeddingReleaser, clip_rows


class Unclipped(EmbeddingReleaser):
    """Adds noise for an embedding of norm B to one that nothing bounds."""

    def _noisy(self, embeddings: Tensor, count: int) -> Tensor:
        return (
            gaussian(embeddings.detach().flatten(), self.plan.std, self.random)
            .float()
            .view_as(embeddings)
        )


class Halved(EmbeddingReleaser):
    """Adds noise for a record that is removed (B), where it is replaced (2B)."""

    def _noisy(self, embeddings: Tensor, count: int) -> Tensor:
        plan = self.plan
        self.plan = replace(self.plan, noise_multiplier=self.plan.noise_multiplier / 2)
        noisy = super()._noisy(embeddings, count)
        self.plan = plan
        return noisy

    def step(self, rows: Tensor, gradients: Callable[[], Tensor]) -> Tensor:
        """Return a step with half its noise, too."""
        self._charge_above(self._stepped, rows, self.plan.step_multiplier)
        clipped = clip_rows(gradients(), self.plan.step_clip).sum(0)
        return gaussian(
            clipped, self.plan.step_clip * self.plan.step_multiplier, self.random
        ).float()


class OneNoise(EmbeddingReleaser):
    """Draws one noise vector for all embeddings of a release."""

    def _noisy(self, embeddings: Tensor, count: int) -> Tensor:
        clipped = clip_rows(embeddings.detach(), self.plan.bound)
        return (
            clipped + gaussian(torch.zeros(clipped.shape[1]), self.plan.std, self.random)
        ).float()


class OnceForAll(EmbeddingReleaser):
    """Charges a record's first release, and no other."""

    def _charge(self, multiplier: float, count: int) -> None:
        if not self.ledger.charged().count:
            super()._charge(multiplier, count)


class AsIfFresh(EmbeddingReleaser):
    """Forgets that θ_m has learned from every record."""

    def _pay(self, rows: Tensor) -> None:
        self._learned = False
        super()._pay(rows)


class MadeAgain(EmbeddingReleaser):
    """Makes the table anew whenever it is asked for."""

    def release_once(  # type: ignore[override]
        self, name: str, rows: Tensor, embed: Callable[[], Tensor], public: int = 0
    ) -> object:
        """Make a new release each time."""
        return self.release(rows, embed, public)


CACHED = AttackedParty("party, cached", "cached")
FRESH = AttackedParty("party, fresh", "fresh")
STEPS = AttackedParty("party, dp_sgd", "dp_sgd", z=50.0, step_z=1.0, bound=1e9)
TRAINED = AttackedParty("party, trained", "trained")
ATTACKS: dict[str, Attack] = {"asked": asked, "table": tabled, "steps": stepped, "learned": learned}
HONEST = (
    ("asked", FRESH, 1200),
    ("table", CACHED, 4000),
    ("steps", STEPS, 800),
    ("learned", TRAINED, 800),
)


def _mutant(name: str, subject: AttackedParty, releaser: type[EmbeddingReleaser]) -> AttackedParty:
    return replace(subject, name=f"MUTANT {name}", releaser=releaser, honest=False)


MUTANTS = (
    ("asked", _mutant("embeddings without a bound", FRESH, Unclipped), 600),
    ("asked", _mutant("half the sensitivity of an embedding", FRESH, Halved), 1600),
    ("asked", _mutant("fresh embeddings charged once", FRESH, OnceForAll), 1600),
    ("steps", _mutant("half the sensitivity of a step", STEPS, Halved), 1200),
    ("learned", _mutant("learned, charged as if fresh", TRAINED, AsIfFresh), 600),
)
STRUCTURE = (
    (unlike, _mutant("one noise for all embeddings", FRESH, OneNoise)),
    (again, _mutant("a table made again", CACHED, MadeAgain)),
)


def party_tests(source: Randomness, *, mutants: bool) -> list[Finding]:
    """Run all tests of G: every mode, and the mutants if they are wanted."""
    subjects = [*HONEST]
    structure = [(unlike, FRESH), (unlike, CACHED), (again, CACHED)]
    if mutants:
        subjects += MUTANTS
        structure += STRUCTURE
    findings = []
    for name, subject, count in subjects:
        findings += attacked(name, ATTACKS[name], subject, source, count)
    for test, subject in structure:
        findings += test(subject, source)
    return findings
