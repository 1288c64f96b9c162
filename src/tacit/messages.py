"""What roles say to one another: frozen values, no bytes, no topics, no sockets."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.privacy.accounting import History
from tacit.privacy.ledger import UNCHARGED, Charged
from tacit.privacy.plan import Released

SERVER = "server"  # the address of the server role
EVERYONE = "*"  # the address of a broadcast


@dataclass(frozen=True, slots=True)
class Hello:
    """Edge → server, at start and whenever it has no model: MAPA Algorithm 1, edge line 1 ("send ε_k").

    Public configuration only. `noise_variance` is E||η||²/C² of one push: the server scales it by C² to plan its
    stages without knowing the mechanism (Δ_0 of the paper). `spent` is the ledger's history (q, z, count), `charged`
    how far it has come. refusals, refusal: models that the edge's policy refused to work on, and why the last one.
    """

    edge: str
    epsilon: float
    delta: float
    mechanism: str
    noise_variance: float
    clip_min: float
    clip_max: float
    spent: History
    charged: Charged = UNCHARGED
    refusals: int = 0
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Push:
    """Edge → wire: a paid-for vector, computed from model `base_version`. Becomes an `Update` at the server."""

    edge: str
    base_version: int
    released: Released


@dataclass(frozen=True, slots=True)
class Update:
    """Wire → server: the same after decoding. gradient: (d,) float32, finite; `clip` is the C it was made with."""

    edge: str
    base_version: int
    gradient: Tensor
    clip: float
    spent: History
    charged: Charged = UNCHARGED


@dataclass(frozen=True, slots=True)
class Retired:
    """Edge → server: its budget is spent (or its policy refuses for good); it pushes no more in this run."""

    edge: str
    reason: str
    spent: History
    charged: Charged = UNCHARGED


@dataclass(frozen=True, slots=True)
class Terms:
    """What a server takes for granted of an edge's privacy. An edge that differs refuses; it never obeys."""

    mechanism: str
    sampling_rate: float
    noise_multiplier: float | None = None


@dataclass(frozen=True, slots=True)
class GlobalModel:
    """Server → edge: x_t with its version t and the clip norm C now asked for. params: (d,) float32."""

    version: int
    params: Tensor
    clip: float
    terms: Terms | None = None


@dataclass(frozen=True, slots=True)
class Halt:
    """Server → everyone: training is over at `version`."""

    version: int
    reason: str


Uplink = Hello | Update | Retired  # what a server role receives
Downlink = GlobalModel | Halt  # what an edge role receives


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message and its address: an edge id, SERVER or EVERYONE."""

    to: str
    message: Hello | Push | Retired | GlobalModel | Halt
