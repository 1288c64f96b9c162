"""What roles say to one another: frozen values, no bytes, no topics, no sockets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from tacit.privacy.accounting import History
from tacit.privacy.ledger import UNCHARGED, Charged
from tacit.privacy.policy import Terms
from tacit.privacy.release import Released
from tacit.privacy.trained import Shared
from tacit.protocol.vertical import Embed, Feedback, Part, Request, Roster

SERVER = "server"  # the address of the server role
EVERYONE = "*"  # the address of a broadcast


@dataclass(frozen=True, slots=True)
class Hello:
    """Edge → server, at start and whenever it has no model: MAPA Algorithm 1, edge line 1 ("send ε_k").

    Public configuration only, for people: a server computes with what the run file says of an edge, whatever that says
    of itself. `noise_variance` is E||η||²/C² of one push (Δ_0/C² of the paper). `spent` is the ledger's history
    (q, z, count), `charged` how far it has come. refusals, refusal: models that the edge's policy refused to work on,
    and why the last one.
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
    """Wire → server: the same after decoding. vector: (d,) float32, finite; `clip` is the C it was made with.

    What the vector is, is the algorithm's: a noisy mean gradient (MAPA), a model x_new (FedAsync, FedAvg, DP-PASGD),
    or a model's distance to its base (FedBuff; whatever is noised at the server); a peer's model (A(DP)²SGD). steps:
    that the sender has taken in all, where nobody else counts them (A(DP)²SGD). A vertical
    party's: embeddings of the rows that `part` names, one after the other; none where they were sent before (VAFL).
    """

    edge: str
    base_version: int
    vector: Tensor
    clip: float
    spent: History
    charged: Charged = UNCHARGED
    steps: int = 0
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class Retired:
    """Edge → server: its budget is spent (or its policy refuses for good); it pushes no more in this run."""

    edge: str
    reason: str
    spent: History
    charged: Charged = UNCHARGED


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


@dataclass(frozen=True, slots=True)
class Deadline:
    """Driver → server: the role's timer `number` has run out. Time enters a fold only so, as a journal entry."""

    number: int


@dataclass(frozen=True, slots=True)
class Timer:
    """What a server role waits for: `Deadline(number)` unless it changes its mind within `seconds`."""

    number: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Proposal:
    """Peer → peer: exchange number `seq` of this link; `model` is the proposer's. Said again until it is answered.

    life: of the proposer's durable state, which numbers (a new one has a larger life, and begins at 1 again). counts:
    steps of every peer, as far as the sender knows. model: (d,), sealed on the way out, a tensor on the way in.
    """

    peer: str
    life: int
    seq: int
    model: Shared | Tensor
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """Peer → peer: exchange `seq` of the proposer's `life` is done here: `delta` was added, and is to be taken off."""

    peer: str
    life: int
    seq: int
    delta: Shared | Tensor
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Share:
    """Peer → peer, all-reduce: the sender's model after its step of `round`."""

    peer: str
    round: int
    model: Shared | Tensor


@dataclass(frozen=True, slots=True)
class Missing:
    """Peer → peer, all-reduce: the addressee's Share of `round` has not come."""

    peer: str
    round: int


@dataclass(frozen=True, slots=True)
class Report:
    """Peer → wire: its model, for an observer. Becomes an `Update`.

    version: the global counter as the peer knows it; steps: its own.
    """

    edge: str
    version: int
    steps: int
    model: Shared
    spent: History
    charged: Charged


Uplink = Hello | Update | Retired  # what edges send to a server role
ServerInput = (
    Uplink | Halt | Deadline | Request
)  # what it is given, in journal order; a Request is an operator's
Downlink = GlobalModel | Halt  # what an edge role receives
Gossip = Proposal | Answer | Share | Missing  # what a peer receives from peers
ServerOutput = (
    GlobalModel | Halt | Roster | Feedback | Request
)  # what a server role says; the last three to a vertical party


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message and its address: an edge id, SERVER or EVERYONE."""

    to: str
    message: (
        Hello
        | Push
        | Report
        | Embed
        | Retired
        | GlobalModel
        | Halt
        | Gossip
        | Roster
        | Feedback
        | Request
    )
