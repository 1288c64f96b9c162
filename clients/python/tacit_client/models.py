"""The documents of the REST interface, as a client reads them.

Known fields are typed. Unknown ones are kept, so that a newer server does no harm.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

FINAL_STATES = ("finished", "halted")


class _Document(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    def to_json(self) -> dict[str, Any]:
        """Return the document as it came, unknown fields included."""
        return self.model_dump(mode="json", exclude_unset=True, by_alias=True)


class RunDefinition(_Document):
    """What all who take part must agree on: sections of the run file, and hashes of its code."""

    fingerprint: str
    agreed: dict[str, Any]


class Staleness(_Document):
    """How many versions lay between a model and the updates made from it."""

    mean: float
    p95: float
    max: int
    tau_max: int | None = None


class Schedule(_Document):
    """What the next update is made and applied with. What an algorithm does not have is None."""

    clip: float
    learning_rate: float | None
    delta_s: float | None = None
    stage: int | None = None
    stage_step: int | None = None
    mixing: float | None = None
    asked: int | None = None
    answered: int | None = None
    absent: int | None = None
    disagreement: float | None = None


class EdgePrivacy(_Document):
    """What one edge's data has paid. An ε of None is infinite: there is no guarantee.

    budget_of: "data": the budget is for all of ε; "run": for the part of it that this run spends.
    """

    epsilon_pld: float | None
    epsilon_rdp: float | None
    delta: float
    pushes: int
    noise_multiplier: float | None
    sampling_rate: float | None
    clip: Any
    mechanism: str
    adjacency: str
    budget: float | None
    budget_of: str = "data"


class Edge(EdgePrivacy):
    """One edge; `state` is online, refusing, retired, left, offline or unknown."""

    id: str
    state: str
    updates: int
    retired: str = ""
    refusals: int = 0
    refusal: str = ""
    bound: bool = False


class _Guarantee(_Document):
    """The run's guarantee: the largest ε of any edge; None: there is none.

    counts: what else than this run is in ε.
    """

    guarantee: str
    unit: str = "record"
    adjacency: str = ""
    noise_at: str = "edge"
    trusted: str = ""
    delta: float
    epsilon: float | None
    mu: float | None = None
    labels_epsilon: float | None = None
    counts: str = ""


class Privacy(_Guarantee):
    """The run's guarantee, with every edge's ε.

    sides: the largest ε of each side, where edges hold rows out; ε is the larger.
    """

    edges: dict[str, EdgePrivacy]
    sides: dict[str, float | None] | None = None


class PrivacyTotal(_Guarantee):
    """The run's guarantee now. bound: ε is an upper bound, as long as the run goes on."""

    bound: bool = False


class _Results(_Document):
    algorithm: str
    dataset: str
    model: str
    parameters: int
    seed: int
    edges: int
    applied: int
    duplicates: int
    rejected: int
    duration_s: float
    updates_per_s: float
    test_accuracy: float | None
    test_loss: float | None
    metrics: dict[str, float | None] = {}
    model_version: int
    model_sha256: str
    staleness: Staleness
    stages: int


class Summary(_Results):
    """A run's summary.json."""

    privacy: Privacy


class Slowest(_Document):
    """The edge that has released least."""

    id: str
    releases: int


class Veto(_Document):
    """An edge whose owner's policy forbids the run; `policy` is the key that does."""

    id: str
    policy: str


class Noisy(_Document):
    """A figure that noise leaves: its interval holds the exact one of these rows with 95 %."""

    value: float
    low: float
    high: float


class Judged(_Document):
    """The latest look at rows that edges hold out, of `looks`; noise hides what it has not.

    best: the look whose model is the best so far.
    """

    look: int
    looks: int
    version: int
    edges: int
    of: int
    suppressed: bool
    metrics: dict[str, Noisy]
    best: int | None = None
    epsilon: float


class Status(_Results):
    """What summary.json would say now but for its edges, with the run's `state`.

    The state is waiting, training, finished or halted.
    """

    privacy: PrivacyTotal

    state: str
    reason: str = ""
    edges_online: int
    edges_refusing: int = 0
    vetoes: list[Veto] = []
    refusals: int = 0
    edges_needed: int = 0
    target: int
    schedule: Schedule
    slowest: Slowest | None = None
    judged: Judged | None = None
    at: str = ""
    events: int = 0

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.state in FINAL_STATES


class Point(_Document):
    """One evaluation on the public test set."""

    version: int
    seconds: float
    at: str = ""
    accuracy: float | None
    loss: float | None
    samples: int
    metrics: dict[str, float | None] = {}


class RunEvent(_Document):
    """An event with the server's time (UTC); `who` is an edge, run or aggregator."""

    number: int
    at: str
    who: str
    state: str
    text: str


class Layer(_Document):
    """One tensor of the weights file."""

    name: str
    shape: list[int]


class ModelInfo(_Document):
    """What `Client.weights` would fetch now."""

    name: str
    version: int
    parameters: int
    sha256: str
    bytes: int
    layers: list[Layer]
    clip: float
    state: str
    additive: bool = False


class BinOfTerm(_Document):
    """A bin of an additive model. rows: noisy; deviation: of what it adds, by the noise alone."""

    low: float | None = Field(None, alias="from")
    high: float | None = Field(None, alias="to")
    value: str | None = None
    added: list[float]
    rows: float | None = None
    deviation: float | None = None


class ModelTerm(_Document):
    """A term of an additive model, of one column, or of several together."""

    columns: list[str]
    importance: float | None = None
    by_noise: float | None = None
    bins: list[BinOfTerm]


class ModelFunctions(_Document):
    """The functions of an additive model, with what noise makes of each bin."""

    version: int
    outputs: list[str]
    terms: list[ModelTerm]
    intercept: BinOfTerm


class Halted(_Document):
    """The aggregator's answer to a halt."""

    state: str
    reason: str


class Begun(_Document):
    """The aggregator's answer to a beginning: edges that are there."""

    edges: int


class Prediction(_Document):
    """The predicted class of one record."""

    id: str
    label: int
    probabilities: list[float]


class Predictions(_Document):
    """The predictions of a vertical run's model.

    `epsilon` is a person's at all parties together, after these predictions (None: no guarantee).
    """

    model_version: int
    predictions: list[Prediction]
    epsilon: float | None
