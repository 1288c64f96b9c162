"""The JSON documents of the REST interface, for OpenAPI. Every one may gain keys: readers ignore
what they do not know.

A number that JSON cannot hold (an infinite ε: no guarantee) is null.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tacit.privacy.report import EdgePrivacy, RunPrivacy, TotalPrivacy
from tacit_services.transport.problems import Problem


class _Document(BaseModel):
    model_config = ConfigDict(extra="allow")


class Parts(_Document):
    """The parts that a ready aggregator needs."""

    store: str = Field(
        description="up, recovering (not reached yet, or the run is being read back) or lost"
    )
    broker: str = Field(description="up, down, or refuses (a subscription)")


class Ready(_Document):
    """The answer of a ready aggregator; after a run's end nothing is needed any more."""

    status: str
    parts: Parts


class NotReady(Problem):
    """The answer that names the missing part; `parts` as in Ready."""

    parts: dict[str, str]


class Released(_Document):
    """The edge may take part again."""

    id: str
    released: bool


class Staleness(_Document):
    """Versions that passed between a model and the update made from it.

    Over all applied updates.
    """

    mean: float
    p95: int
    max: int
    tau_max: int = Field(description="largest among the latest updates; what the schedule uses")


class Schedule(_Document):
    """The algorithm's current numbers.

    Each algorithm adds numbers of its own (docs/algorithms.md).
    """

    clip: float
    learning_rate: float | None
    delta_s: float | None = Field(None, description="MAPA: ΔS = 2C/b")
    stage: int | None = Field(None, description="MAPA")
    stage_step: int | None = Field(None, description="MAPA: updates applied in this stage")
    mixing: float | None = Field(None, description="FedAsync, FedBuff: α_t of the latest update")
    asked: int | None = Field(None, description="rounds: edges asked in this one")
    answered: int | None = Field(None, description="rounds: answers so far")
    absent: int | None = Field(None, description="rounds: edges that missed their last deadline")
    disagreement: float | None = Field(
        None, description="peers: largest distance of a model from the mean of all"
    )


class Edge(EdgePrivacy):
    """One edge that has said Hello, or whose policy forbids the run."""

    id: str
    state: str = Field(
        description="online, refusing, quarantined, retired, left, offline or unknown"
    )
    updates: int
    retired: str = Field(description="why, if it is")
    refusals: int = Field(
        description="models that its policy has refused to work on, as it last said"
    )
    refusal: str = Field(description="why it refused the latest of them")
    quarantine: str = Field(description="why the guard hears it no more, if so")
    bound: bool = Field(description="ε is an upper bound of what was released")


class Privacy(RunPrivacy):
    """The run's guarantee."""

    bound: bool = Field(False, description="an ε is an upper bound of what was released")


class PrivacyTotal(TotalPrivacy):
    """The run's guarantee, without its edges."""

    bound: bool = Field(description="ε is an upper bound of what was released")


class Veto(_Document):
    """An edge whose owner's policy forbids the run. policy: the key that does."""

    id: str
    policy: str


class Slowest(_Document):
    """The edge that has released least."""

    id: str
    releases: int


class Noisy(_Document):
    """A figure that noise leaves: its interval holds the exact one of these rows with 95 %."""

    value: float
    low: float
    high: float


class Judged(_Document):
    """The latest look at the rows that edges hold out: its first noisy figures."""

    look: int
    looks: int = Field(description="that the run has")
    version: int = Field(description="of the model that was judged")
    edges: int = Field(description="that have answered")
    of: int
    suppressed: bool = Field(description="the noise hides all figures: none of them is 0")
    metrics: dict[str, Noisy]
    best: int | None = Field(description="the look whose model is the best so far; null: none is")
    epsilon: float = Field(description="of all looks together, on top of training's")


class Status(_Document):
    """summary.json's keys but for the list of edges, with the run's state: 2 KB at most."""

    format: int = Field(
        description="of these keys: raised when one goes or changes its meaning, not when one is "
        "new"
    )
    state: str = Field(description="waiting, training, finished or halted")
    reason: str = Field(description="why the run ended; empty before")
    run: str
    algorithm: str
    dataset: str
    model: str
    parameters: int
    seed: int
    edges: int
    edges_online: int
    edges_refusing: int = Field(description="whose policy refuses the model, or the run")
    vetoes: list[Veto] = Field(
        [], description="the first few edges whose policy forbids the run; left out: none"
    )
    refusals: int = Field(description="models that edges have refused, as they last said")
    edges_needed: int = Field(
        0, description="the run begins when so many edges are there; 0: it has begun"
    )
    target: int
    applied: int
    duplicates: int
    stale: int
    rejected: int
    duration_s: float
    updates_per_s: float
    test_accuracy: float | None
    test_loss: float | None
    model_version: int
    model_sha256: str = Field(
        description="of the weights at model_version, as /v1/model/weights serves them"
    )
    staleness: Staleness
    stages: int
    schedule: Schedule
    slowest: Slowest | None
    privacy: PrivacyTotal
    judged: Judged | None = Field(None, description="left out: no edge has answered a look")
    at: str = Field("", description="the server's time, UTC, when this was true")
    events: int = Field(0, description="the number of the newest event of /v1/log")


class RunDefinition(_Document):
    """The run definition, as far as all who take part must agree on it."""

    fingerprint: str = Field(description="the run's name: SHA-256 of what differs from defaults")
    agreed: dict[str, Any] = Field(
        description="sections of the run file, without defaults; code: SHA-256 of each entry"
    )


class Point(_Document):
    """One evaluation on the public test set."""

    version: int
    seconds: float
    at: str = Field("", description="the server's time, UTC; before 0.3 there was none")
    accuracy: float | None
    loss: float | None
    samples: int


class RunEvent(_Document):
    """An event: an edge came, left or lost its connection, the run or its aggregator changed."""

    number: int
    at: str = Field(description="the server's time, UTC")
    who: str = Field(description="an edge, run or aggregator")
    state: str = Field(description="the new one; of the aggregator: begins or stops")
    text: str


class QuestionAnswer(_Document):
    """A figure that noise leaves: its interval holds the exact one with 95 %."""

    value: float | None = Field(None, description="null where the noise hides it")
    low: float | None = None
    high: float | None = None
    suppressed: bool | None = None
    sampling: float | None = Field(
        None, description="half of what chance in who the rows are of adds; not in the interval"
    )


class LabelledAnswer(QuestionAnswer):
    """One of several answers to a question."""

    label: str = Field(description="the cell, the share, or the value of a category")


class QuestionAnswers(QuestionAnswer):
    """The answers to one question: one, or `values`."""

    question: str
    values: list[LabelledAnswer] | None = None
    edges: int = Field(description="that have answered")
    of: int = Field(description="that were asked")
    epsilon: float = Field(description="of each edge, for all questions together")
    delta: float
    unit: str


class LookSpread(_Document):
    """The edges' own figures. noise: the deviation that noise alone gives one of them."""

    least: float
    median: float
    most: float
    noise: float
    edges: int


class LookDocument(_Document):
    """A look at the rows that edges hold out: noisy figures of the model of one version."""

    look: int
    looks: int = Field(description="that the run has")
    version: int = Field(description="of the model that was judged")
    edges: int = Field(description="that have answered")
    of: int
    suppressed: bool = Field(description="the noise hides all figures")
    metrics: dict[str, Noisy]
    beyond_constant: Noisy | None = Field(
        None, description="how much better it is than always the same answer"
    )
    spread: LookSpread | None = None
    reliability: list[dict[str, float]] | None = Field(
        None, description="of each range of probabilities, the share that came true"
    )
    epsilon: float = Field(description="of all looks together, on top of training's")
    held_out: float
    best: bool = Field(description="its model is the best so far, by looks")


class Layer(_Document):
    """One tensor of the weights file."""

    name: str
    shape: list[int]


class ModelInfo(_Document):
    """A description of what /v1/model/weights would serve now."""

    name: str
    version: int
    parameters: int
    sha256: str
    bytes: int
    layers: list[Layer]
    clip: float
    state: str
    graph: bool = Field(False, description="/v1/model/graph and /v1/model/picture show its layers")
    additive: bool = Field(
        False, description="/v1/model/functions and /v1/model/functions/picture show its columns"
    )


class BinOfTerm(_Document):
    """A bin of an additive model. rows: noisy; deviation: of what it adds, by the noise alone."""

    low: float | None = Field(None, alias="from", description="null: of no number")
    high: float | None = Field(None, alias="to", description="null: of no number")
    value: str | None = Field(None, description="null: of a number")
    added: list[float] = Field(description="to each of the outputs")
    rows: float | None
    deviation: float | None


class ModelTerm(_Document):
    """A term of an additive model, of one column, or of several together."""

    columns: list[str]
    importance: float | None = Field(description="how far it moves a row, on average")
    by_noise: float | None = Field(description="how far noise alone would")
    bins: list[BinOfTerm]


class ModelFunctions(_Document):
    """The functions of an additive model, with what noise makes of each bin."""

    version: int
    outputs: list[str]
    terms: list[ModelTerm]
    intercept: BinOfTerm


class NetworkWeight(_Document):
    """A weight of a layer. trained: or fixed."""

    name: str
    shape: list[int]
    trained: bool


class NetworkLayer(_Document):
    """A row of a graph's layers."""

    number: int
    layers: int = Field(description="how many layers it stands for: 1, or those left out")
    name: str = Field(description="of the module whose weights it reads; empty: it reads none")
    line: str = Field(description="of the user's module that asked for it")
    operations: list[str]
    reads: list[int] = Field(description="numbers of the rows that it reads; 0: the example")
    shape: list[int] = Field(description="of its result, for one example")
    trained: int = Field(description="numbers of its weights that are trained")
    fixed: int
    again: bool = Field(description="an earlier layer reads its weights, too")
    multiply_adds: int = Field(description="of one example, forward")
    weights: list[NetworkWeight] = Field(description="the first of those that no earlier row reads")


class NetworkRepeat(_Document):
    """Rows, by number, that come several times after each other."""

    first: int
    last: int
    times: int


class NetworkInfo(_Document):
    """A graph by its layers, of a bounded size, as `tacit show --json` prints it."""

    sha256: str = Field(description="of the graph's file, as the run definition has it")
    example: str
    output: list[int]
    trained: int
    fixed: int
    multiply_adds: int = Field(description="of one example, forward")
    operations: dict[str, int]
    loss_operations: int | None = Field(description="of its own loss; null: one of tacit's")
    layers: list[NetworkLayer]
    repeats: list[NetworkRepeat]


class HaltRequest(BaseModel):
    """Why the operator ends the run."""

    model_config = ConfigDict(extra="forbid")

    # No control characters: the reason is logged, journalled and sent to every edge.
    reason: str = Field("operator", min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")


class Halted(_Document):
    """The halt is in the journal: the run is over. `state` is the one before it."""

    state: str
    reason: str


class Begun(_Document):
    """The run waits for no more edges than these, which are there."""

    edges: int


class PredictRequest(BaseModel):
    """The records whose class is asked for, and how long to wait for the parties."""

    model_config = ConfigDict(extra="forbid")

    ids: list[str] = Field(
        min_length=1, max_length=1000, description="record ids, as the run's data has them"
    )
    wait_s: float = Field(30.0, gt=0, le=600)


class Prediction(_Document):
    """One record's class."""

    id: str
    label: int
    probabilities: list[float]


class Predictions(_Document):
    """A vertical run's predictions for records, from its parties' embeddings of them."""

    model_version: int
    predictions: list[Prediction]
    epsilon: float | None = Field(
        description="of a person at all parties together, these releases among it; null: none"
    )
