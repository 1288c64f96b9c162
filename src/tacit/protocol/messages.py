"""The messages between roles: frozen values, without bytes, topics or sockets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from tacit.privacy.accounting import History
from tacit.privacy.ledger import UNCHARGED, Charged
from tacit.privacy.policy import Terms
from tacit.privacy.release import Released
from tacit.privacy.release.trained import Shared
from tacit.protocol.vertical import Embed, Feedback, Request, Roster, UploadPart

SERVER = "server"  # the address of the server role
EVERYONE = "*"  # the address of a broadcast


@dataclass(frozen=True, slots=True)
class Hello:
    """Edge → server: the edge is connected and has no model.

    (MAPA Algorithm 1, edge line 1: "send ε_k".)

    Sent at the start and whenever the edge has no model. It holds public configuration only, for
    people. A server computes with the run file's values for an edge, never with the edge's own.
    noise_variance: E||η||²/C² of one push (Δ_0/C² of the paper). spent: the ledger's history (q, z,
    count). charged: how far the ledger has come. refusals, refusal: how many models the edge's
    policy refused to work on, and why the last one. looked: the last look that the edge is done
    with: it has answered, or passed it over, as it could not pay.
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
    looked: int = 0


@dataclass(frozen=True, slots=True)
class Push:
    """Edge → wire: a paid-for vector, computed from model `base_version`.

    At the server it is an `Update`. look: the look that it answers; 0: it is a step of training.
    """

    edge: str
    base_version: int
    released: Released
    look: int = 0


@dataclass(frozen=True, slots=True)
class Update:
    """Wire → server: what an edge, a peer or a party has sent, decoded.

    vector: (d,) float32, finite. What it is depends on the algorithm. It is a noisy mean gradient
    (MAPA), a model x_new (FedAsync, FedAvg, DP-PASGD), or a peer's model (A(DP)²SGD). For FedBuff,
    and for all that is noised at the server, it is a model's distance to its base. A vertical
    party's is embeddings of the rows that `part` names, one after the other, and none if they were
    sent before (VAFL). clip: the C that it was made with. steps: how many the sender has taken in
    all, where no server counts them (A(DP)²SGD). look: 0, or the look that it answers: then
    `vector` is counts of held-out rows, and moves no model. consumable: nobody else reads the
    memory of `vector`, so a fold may write its result there.
    """

    edge: str
    base_version: int
    vector: Tensor
    clip: float
    spent: History
    charged: Charged = UNCHARGED
    steps: int = 0
    part: UploadPart | None = None
    consumable: bool = False
    look: int = 0

    @property
    def room(self) -> Tensor | None:
        """Where a fold may write what it makes of `vector`; None: into memory of its own."""
        if self.consumable:
            return self.vector
        return None


@dataclass(frozen=True, slots=True)
class Retired:
    """Edge → server: it pushes no more in this run.

    Its budget is spent, or its policy refuses for good.
    """

    edge: str
    reason: str
    spent: History
    charged: Charged = UNCHARGED


@dataclass(frozen=True, slots=True)
class GlobalModel:
    """Server → edge: the model x_t with its version t, and the clip norm C to use.

    params: (d,) float32. look: 0, or the number of the look for which the edge is to judge the
    model on its held-out rows.
    """

    version: int
    params: Tensor
    clip: float
    terms: Terms | None = None
    look: int = 0


@dataclass(frozen=True, slots=True)
class Halt:
    """Server → everyone: training is over at `version`."""

    version: int
    reason: str


@dataclass(frozen=True, slots=True)
class LiftQuarantine:
    """Operator → server: what the guard holds against `edge` is forgotten."""

    edge: str


@dataclass(frozen=True, slots=True)
class Deadline:
    """Driver → server: the role's timer `number` has run out.

    Time enters a fold in no other way: a deadline is a journal entry.
    """

    number: int


@dataclass(frozen=True, slots=True)
class Timer:
    """A server role's request for `Deadline(number)` after `seconds`.

    It holds unless the role returns another timer before.
    """

    number: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Proposal:
    """Peer → peer: exchange number `seq` of this link. Said again until it is answered.

    life: a number of the proposer's durable state; a new state has a larger one, and its `seq`
    begins at 1 again. model: the proposer's, (d,), sealed on the way out, a tensor on the way in.
    counts: steps of every peer, as far as the sender knows.
    """

    peer: str
    life: int
    seq: int
    model: Shared | Tensor
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """Peer → peer: exchange `seq` of the proposer's `life` is done.

    The sender has added `delta` to its model; the proposer is to take it off its own.
    """

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
    """Peer → peer, all-reduce: the sender still waits for the addressee's Share of `round`."""

    peer: str
    round: int


@dataclass(frozen=True, slots=True)
class Report:
    """Peer → wire: its model, for an observer; at the observer, an `Update`.

    version: the global counter as the peer knows it. steps: the peer's own.
    """

    edge: str
    version: int
    steps: int
    model: Shared
    spent: History
    charged: Charged


Uplink = Hello | Update | Retired  # what edges send to a server role
# All that a server role is given, in journal order. An operator sends LiftQuarantine and Request.
ServerInput = Uplink | Halt | LiftQuarantine | Deadline | Request
PeerMessage = Proposal | Answer | Share | Missing  # what a peer receives from peers
# All that a server role says; the last three go to a vertical party.
ServerOutput = GlobalModel | Halt | Roster | Feedback | Request


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
        | PeerMessage
        | Roster
        | Feedback
        | Request
    )
