"""Edges with one defect each, which the audit must catch: real edges with one class replaced.

They exist so that `tacit audit` shows what it can see. Nothing but the audit may import this
module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from torch import Tensor

from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.audit import mutants_alone as alone
from tacit.audit import mutants_graphs as graphs
from tacit.audit import mutants_own as own
from tacit.audit import mutants_people as people
from tacit.audit import mutants_rows as rows
from tacit.audit.subject import DELTA, ROWS, WIDE, Ask, Subject
from tacit.models.vectors import mean_gradient
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.privacy.noise.mechanisms import paper_noise
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.choice import Ways
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.rows_alone import RowsAlone
from tacit.privacy.private_sum.sampling import poisson
from tacit.privacy.private_sum.slots import Slots, UnitSlots
from tacit.privacy.release import Releaser
from tacit.protocol.messages import GlobalModel, Outgoing, ServerOutput

_NONCE = bytes(16)
_zeros = bytes  # inside a Random the name `bytes` is its method


class MeanClipping(Slots):
    """Clips the mean of the batch, as the papers do: one record can turn the mean round."""

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return the clipped mean, as if it were a sum of clipped rows."""
        plan = self.plan
        batch = poisson(len(self.y), plan.sampling_rate, self.size, self.random)
        drawn = batch.index[batch.mask]
        mean = mean_gradient(self.model, params, self.x[drawn], self.y[drawn])
        return Clipped(mean / max(1.0, float(mean.norm()) / clip) * plan.batch, clip)


class Obedient(GradientEdge):
    """Takes its noise from a server's message."""

    def on_message(self, message: ServerOutput) -> list[Outgoing]:
        """Obey the terms, then work."""
        if (
            isinstance(message, GlobalModel)
            and message.terms
            and message.terms.noise_multiplier is not None
        ):
            z = max(message.terms.noise_multiplier, 1e-6)
            self.releaser.plan = replace(self.releaser.plan, noise_multiplier=z)
            message = replace(message, terms=None)
        return super().on_message(message)


class LessNoise(Releaser):
    """Adds less noise than it charges."""

    factor: ClassVar[float] = 0.5

    def _noisy(
        self, clipped: Clipped, clip: float, paper_dims: slice | None
    ) -> tuple[Tensor, float]:
        with self._weaker():
            return super()._noisy(clipped, clip, paper_dims)

    @contextmanager
    def _weaker(self) -> Iterator[None]:
        promised = self.plan
        self.plan = replace(promised, noise_multiplier=promised.noise_multiplier * self.factor)
        yield
        self.plan = promised


class RootHalfNoise(LessNoise):
    """Loses a factor of √2.

    It adds noise for one record where a replaced one counts twice, or a mean of draws.
    """

    factor = 0.5**0.5


class MeanNoise(LessNoise):
    """Adds the noise for the sensitivity of a mean to the sum.

    A(DP)²SGD is printed so (arXiv:2008.09246).
    """

    factor = 1 / ROWS


class FirstLayerNoise(Releaser):
    """Adds noise to the first layer only, the others being "post-processing"."""

    def _noisy(
        self, clipped: Clipped, clip: float, paper_dims: slice | None
    ) -> tuple[Tensor, float]:
        noisy, scale = super()._noisy(clipped, clip, paper_dims)
        assert paper_dims is not None  # the first layer
        noisy[paper_dims.stop :] = (clipped.total / self.plan.batch)[paper_dims.stop :]
        return noisy, scale


class LineDensity(Releaser):
    """Adds noise whose norm is exponential: Laplace's density on the line, used in d dimensions."""

    def _noisy(
        self, clipped: Clipped, clip: float, paper_dims: slice | None
    ) -> tuple[Tensor, float]:
        noise = paper_noise(clipped.total.numel(), self.plan.noise_multiplier * clip, self.random)
        return ((clipped.total + noise) / self.plan.batch).to(torch.float32), 1.0


class SeededNoise(Random):
    """Begins at the same place of the same stream at every start."""

    def _rekey(self) -> None:
        super()._rekey()
        self._stream = Cipher(algorithms.ChaCha20(bytes(32), _NONCE), mode=None).encryptor()


class TwoByteKeys(Random):
    """Has keys of which only two bytes are random."""

    def _rekey(self) -> None:
        super()._rekey()
        key = super().bytes(2) + bytes(30)
        self._stream = Cipher(algorithms.ChaCha20(key, _NONCE), mode=None).encryptor()

    def renew(self) -> None:
        """Take a fresh key, whether the stream is secret or not."""
        if self._seed is None:
            self._seed = None
        else:
            self._seed = self._seed + 1_000_003
        self._rekey()


class ReusedNoise(Random):
    """Has the same noise for every push."""

    def bytes(self, count: int) -> bytes:
        """Return the first `count` bytes of the stream, each time."""
        self._stream = Cipher(
            algorithms.ChaCha20(id(self).to_bytes(32, "big"), _NONCE), mode=None
        ).encryptor()
        return self._stream.update(_zeros(count))


class CopiedByFork(Random):
    """Keeps its key for good, and does not notice a fork."""

    def renew(self) -> None:
        """Do nothing: the key stays."""

    def bytes(self, count: int) -> bytes:
        """Return the next bytes; a child's are its parent's."""
        return self._stream.update(_zeros(count))


def renoised(ask: Ask) -> tuple[bytes, bytes]:
    """Compute a retry again: two releases for one charge."""
    return ask(), ask()


class Amplified(Subject):
    """Claims A(DP)²SGD's Theorem 2: a batch drawn at q/K, for K peers, in K times as many steps."""

    peers: ClassVar[int] = 256

    @property
    def mu(self) -> None:
        """None: the claim is not a Gaussian's any more."""
        return

    @property
    def epsilon(self) -> float:
        """The claimed ε of one push of this peer."""
        return epsilon_pld([Spend(1 / self.peers, self.z, self.peers, self.mechanism)], DELTA)


def _mutant(name: str, **changes: object) -> Subject:
    return Subject(f"MUTANT {name}").but(honest=False, **changes)


def _alone(name: str, way: type[RowsAlone], **changes: object) -> Subject:
    """Return a mutant of how drawn rows are computed and added up alone."""
    return _mutant(name, ways=Ways(alone=way), compiled=True, **changes)


def _in_slots(name: str, way: type[Slots], **changes: object) -> Subject:
    """Return a mutant of how slots are filled or clipped, which drawn rows alone do not come by."""
    return _mutant(name, ways=Ways(slots=way, outer=way), rows_alone=False, **changes)


def _in_a_graph(name: str, way: type[RowsAlone]) -> Subject:
    """Return a mutant of how rows go through a graph one by one."""
    return _mutant(f"in a graph, {name}", ways=Ways(alone=way))


def _of_people(name: str, way: type[UnitSlots]) -> Subject:
    """Return a mutant of how people's rows are drawn or clipped."""
    return _mutant(name, ways=Ways(units=way))


# z = 0.5, as near μ = 2 a wrong factor is found with the fewest pushes.
HALF = _mutant("half noise", z=0.5, releaser=LessNoise)
FIRST_LAYER = _mutant("first-layer-only noise", releaser=FirstLayerNoise)
MEAN_CLIP = _in_slots("mean clipping", MeanClipping)
DENOMINATOR = _alone("wrong denominator |B|", alone.CountsRows, releaser=alone.TrueDenominator)
LOCAL: dict[str, object] = {"algorithm": "fedasync", "steps": 4, "rate": 0.5}  # H > 1 and q < 1

# (test, mutant, messages each way): a test that must catch it; docs/privacy.md has its power.
SAMPLED: tuple[tuple[str, Subject, int], ...] = (
    ("canary", MEAN_CLIP, 600),
    ("canary", FIRST_LAYER, 600),
    (
        "canary",
        _mutant(
            "1-D density in d dimensions",
            mechanism="knorm",
            z=2.0,
            model=WIDE,
            releaser=LineDensity,
        ),
        800,
    ),
    ("canary", HALF, 1000),
    ("canary", _mutant("noise/√2", z=0.5, releaser=RootHalfNoise), 2800),
    ("canary", _mutant("A(DP)²SGD: a mean's noise on the sum", releaser=MeanNoise), 600),
    ("canary", Amplified("MUTANT A(DP)²SGD: amplified by 1/K", honest=False), 3200),
    ("canary", _mutant("the paper as printed", mechanism="paper", z=2.0), 800),
    (
        "canary",
        _mutant("paper:mean_clip", mechanism="paper:mean_clip", z=2.0, batch=4.0 * ROWS),
        800,
    ),
    ("canary", _mutant("paper:density", mechanism="paper:density", z=2.0, model=WIDE), 800),
    ("canary", _mutant("paper:first_layer", mechanism="paper:first_layer", z=2.0), 800),
    (
        "canary",
        _in_slots("a peer that clips at 2C", rows.TwiceTheClip, algorithm="adp2sgd", z=0.5),
        1200,
    ),
    ("against", _in_slots("two rows added before the clip", rows.PairsTogether, z=0.5), 1600),
    ("against", _in_slots("layers clipped apart", rows.LayersApart, z=0.5), 1200),
    ("places in parts", _alone("every second place computed", alone.ByPlace), 120),
    ("places in a graph", _in_a_graph("an operation keeps state", graphs.KeepsState), 200),
    ("places in a graph", _in_a_graph("an operation draws", graphs.DrawsNumbers), 300),
    ("places in a graph", _in_a_graph("it looks at the batch", graphs.LooksAtTheBatch), 200),
    ("canary", _alone("drawn rows clipped at 2C", alone.AloneTwiceTheClip, z=0.5), 1000),
    ("places", _in_slots("rows one behind the other", rows.Packed), 600),
    ("places", _in_slots("rows in their order from a random slot", rows.Turned), 800),
    (
        "crowd",
        _in_slots("rounded to nearest", rows.RoundedToNearest, mechanism="discrete_gaussian"),
        60,
    ),
    ("own", _in_slots("own rows weighted by their number", own.ByTheirNumber, z=0.5), 800),
    ("own", _in_slots("own rows computed with neighbours", own.WithNeighbours, z=0.5), 400),
    ("raising", _in_slots("an exception drops the batch", own.DropsTheBatch), 200),
    ("raising", _in_slots("an exception ends the edge", own.EndsWithARow), 100),
    ("person", _of_people("rows clipped instead of people", people.RowsClipped), 300),
    ("dealt", _mutant("rows dealt instead of people", deal=people.rows_dealt), 500),
    ("times", _in_slots("strange rows are copied", rows.CopiesStrangeRows), 240),
)
OTHERS: tuple[tuple[str, Subject], ...] = (
    ("noise", FIRST_LAYER),
    ("noise", HALF),
    ("noise", DENOMINATOR),
    ("noise", _mutant("keys of two bytes", random=TwoByteKeys)),
    ("noise", _mutant("noise cut at 3σ", releaser=rows.CutNoise)),
    ("noise", _mutant("noise at the last local step only", releaser=rows.NoiseAtTheEnd, **LOCAL)),
    ("anew", _mutant("noise used again", random=ReusedNoise)),
    ("empty", DENOMINATOR),
    ("starts", _mutant("seeded noise", random=SeededNoise)),
    ("forks", _mutant("generator copied by fork", random=CopiedByFork)),
    ("fields", DENOMINATOR.but(name="MUTANT |B| in the scale", mechanism="discrete_gaussian")),
    ("fields", _mutant("the number of rows in Hello", edge=alone.TellsRows)),
    ("strange", _in_slots("rows that are no numbers", rows.StrangeRowsToo)),
    ("charges", _mutant("one charge for all local steps", releaser=rows.ChargedOnce, **LOCAL)),
    ("charges", _mutant("charges written later", ledger=rows.LateLedger)),
    ("retry", _mutant("re-noised retry", resend=renoised)),
    ("orders", _mutant("noise switched off by a server", edge=Obedient)),
    ("sampler", _alone("shuffled batches", alone.ShuffledBatches)),
    ("sampler", _alone("two coins of q/2", alone.TwoCoins)),
    ("sampler", _alone("neighbours share a coin", alone.OppositeCoins)),
    (
        "sampler",
        _alone("one batch for all local steps", alone.KeptRows, edge=alone.OneBatch, **LOCAL),
    ),
    ("sampler", _alone("rows drawn at 1.25 q", alone.MoreOften)),
    ("sampler", _alone("the same rows for a model again", alone.KeptRows, edge=alone.SameAgain)),
    ("sampler", _alone("a draw of few rows filled up", alone.NeverFewer)),
    ("in parts", _alone("a part's first row added twice", alone.BorderTwice)),
    ("in parts", _alone("a part's last row forgotten", alone.LastForgotten)),
    ("people", _of_people("rows drawn instead of people", people.RowsDrawn)),
    ("training", MEAN_CLIP),
)
