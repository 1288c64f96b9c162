"""The layout since the privacy code has wings."""

from __future__ import annotations

from torch import Tensor

from golden.adapters.rooms import *  # noqa: F403
from tacit.privacy.accounting import History, Spend, calibrate, epsilon_pld, epsilon_rdp, gdp
from tacit.privacy.ledger import Charged, Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.policy import Policy, Terms
from tacit.privacy.release import Released, Releaser
from tacit.privacy.release import embeddings as _embeddings
from tacit.privacy.release import release as _release
from tacit.privacy.release import trained as _trained
from tacit.privacy.release.trusted import Trusted


def released(
    vector: Tensor, scale: float, clip: float, spent: History, charged: Charged
) -> Released:
    """A sealed vector that nobody has paid for, to be encoded."""
    return Released(vector, scale, clip, spent, charged, _release._SEAL)


def shared(vector: Tensor) -> _trained.Shared:
    """A peer's sealed vector."""
    return _trained.Shared(vector, _trained._SEAL)


def embedded(
    rows: Tensor, vectors: Tensor, spent: History, charged: Charged
) -> _embeddings.ReleasedEmbedding:
    """A party's sealed embeddings."""
    return _embeddings.ReleasedEmbedding(rows, vectors, spent, charged, _embeddings._SEAL)
