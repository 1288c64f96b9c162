"""The sections of a run file that every algorithm has. Public numbers only."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from tacit.config.plans import Plans
from tacit.privacy.policy import Positive
from tacit.privacy.release import PRIVATE, Mechanism, NoiseAt, Plan
from tacit.robust.rules import Rule

GAUSSIAN = ("gaussian", "discrete_gaussian")
MOST_PUSHES = 2**53
StopRule = Literal["never", "no better"]
ShareRule = Literal["rows", "budget", "any"]
Clip = Annotated[
    float, Field(ge=1e-6, le=1e6)
]  # where float32 squares and sums of gradients are exact enough


class Section(BaseModel):
    """A part of a run file: strict, frozen, nothing unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def as_stated(self) -> dict[str, Any] | None:
        """Return what stands for the section in a run's name and in its journal.

        None: what differs from the defaults.
        """
        return None


class Run(Section):
    """The run's name, length and seed."""

    name: str = Field(
        "run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="for people and file names"
    )
    updates: int = Field(gt=0, le=2**53, description="T: updates applied before Halt")
    seed: int = Field(
        1, ge=0, lt=2**63, description="initial model and data partition; never the noise"
    )
    snapshot_every: int = Field(
        200, gt=0, description="applies between two snapshots of the journal"
    )
    stop: StopRule = Field(
        "never",
        description="no better: the run ends where the latest evaluations on the public test set "
        "show no gain beyond its uncertainty; edges keep the rest of their budgets",
    )
    average: float | None = Field(
        None,
        ge=0.05,
        le=0.95,
        description="the mean of the models of this last part of the run lies beside the last "
        "model; 0.5: its last half; left out: none",
    )


class Privacy(Section):
    """Each edge's own privacy configuration."""

    mechanism: Mechanism = Field(
        "discrete_gaussian", description="the noise; paper… and none have no guarantee"
    )
    noise_at: NoiseAt = Field(
        "edge", description="server: a trusted aggregator; the unit is then an edge"
    )
    epsilon: Positive = Field(
        2.0, description="budget of an edge's data, for all its pushes together"
    )
    delta: float = Field(
        1e-5, gt=0, lt=1, description="δ at which ε is stated; well below 1/rows of an edge"
    )
    pushes: int = Field(
        1000,
        gt=0,
        le=MOST_PUSHES,
        description="pushes of one edge that the budget must cover; left out of a file: its even "
        "share of run.updates and a tenth",
    )
    batch: float = Field(
        256.0,
        gt=0,
        allow_inf_nan=False,
        description="b = L: expected batch size, fixed denominator; below 1: this part of an "
        "edge's rows; left out of a file: a quarter of an edge's rows where those are fewer",
    )
    noise_multiplier: float | None = Field(
        None, ge=0.1, le=1e6, description="z; None: calibrated from ε, δ, pushes"
    )
    clip: Clip | None = Field(None, description="first C; left out: by eq. (12) for mapa, else 2")
    clip_min: Clip = Field(0.1, description="C never falls below; an edge clips to no less")
    clip_max: Clip = Field(
        100.0, description="an edge clips to no more, whatever the server asks for"
    )
    paper_epsilon: Positive = Field(
        0.1, description="ε per push in the paper's own accounting (mechanism paper)"
    )

    @property
    def private(self) -> bool:
        """Whether a guarantee stands behind the mechanism."""
        return self.mechanism in PRIVATE

    @property
    def constant_clip(self) -> float:
        """C, where the algorithm has no schedule for it: 1 where none is given.

        Without noise nothing is clipped.
        """
        return self.clip or 1.0

    def plans(self, rows: int, epsilons: tuple[float, ...], workers: int, passes: int = 0) -> Plans:
        """Return the plans of `workers` workers with `rows` rows each, a public number.

        epsilons: ε_k of the workers that have their own. passes: as `Plan` has it. q is 1 where a
        trusted server adds the noise: it then covers a whole edge, and nothing is sampled.
        """
        private = self.private
        z = self.noise_multiplier
        default = Plan(
            mechanism=self.mechanism,
            sampling_rate=1.0 if self.noise_at == "server" else min(1.0, self.batch / rows),
            batch=self.batch,
            noise_multiplier=z if private and z is not None else 0.0,
            clip_min=self.clip_min,
            clip_max=self.clip_max,
            epsilon=self.epsilon,
            delta=self.delta,
            paper_epsilon=self.paper_epsilon,
            noise_at=self.noise_at,
            passes=passes,
        )
        return Plans(
            default, rows, self.pushes if private and z is None else None, epsilons, workers
        )

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.clip_min > self.clip_max:
            raise ValueError(f"clip_min={self.clip_min} is above clip_max={self.clip_max}")
        if self.noise_at == "server" and self.mechanism != "gaussian":
            raise ValueError(
                f"mechanism={self.mechanism}: noise_at=server knows gaussian only; say so"
            )
        if (
            self.private
            and self.clip is not None
            and not self.clip_min <= self.clip <= self.clip_max
        ):
            raise ValueError(
                f"clip={self.clip} is outside [clip_min={self.clip_min}, clip_max={self.clip_max}]"
            )
        return self


class Edges(Section):
    """The number of edges, and their differences."""

    count: int = Field(5, gt=0, le=10_000, description="K: edges that the data is dealt to")
    epsilon: tuple[Positive, ...] = Field(
        (), strict=False, description="ε_k of edge k, where not privacy.epsilon"
    )
    slowdown: tuple[Annotated[float, Field(ge=1, le=1000)], ...] = Field(
        (),
        strict=False,
        description="how many times slower edge k computes, where not 1 (a straggler for "
        "experiments)",
    )
    min: int | None = Field(
        None, gt=0, description="the run begins when this many edges are connected; None: count"
    )
    wait: float = Field(
        60.0,
        ge=0,
        le=1e6,
        description="seconds after the first edge has come, when the run begins with fewer",
    )
    grace: float = Field(
        60.0,
        ge=0,
        le=1e6,
        description="seconds that a run without an edge that could push waits for those that are "
        "away and have budget",
    )
    share: ShareRule = Field(
        "rows",
        description="an edge's part of the updates is proportional to this, while other edges wait "
        "for work; any: no edge waits for another",
    )

    @property
    def needed_to_start(self) -> int:
        """The number of edges with which the run begins."""
        if self.min is None:
            return self.count
        return self.min

    def slowdown_of(self, number: int) -> float:
        """Return how many times slower than others edge `number` computes."""
        if number < len(self.slowdown):
            return self.slowdown[number]
        return 1.0


class Delay(Section):
    """A random duration. `seconds` is its mean for every model."""

    model: Literal["constant", "uniform", "exponential", "poisson", "lognormal"] = Field(
        "constant", description="its distribution"
    )
    seconds: float = Field(1.0, ge=0, le=1e9, description="its mean")
    spread: float = Field(
        0.5, ge=0, le=5, description="uniform: largest distance, in means; lognormal: σ of the log"
    )

    @model_validator(mode="after")
    def _positive(self) -> Self:
        if self.model == "uniform" and self.spread > 1:
            raise ValueError(f"spread={self.spread}: a uniform delay would be negative")
        return self


class Away(Section):
    """One scheduled absence: edge number `edge` is disconnected from `leaves` to `returns`."""

    edge: int = Field(ge=0, description="number of the edge")
    leaves: float = Field(ge=0, le=1e12, description="seconds")
    returns: float | None = Field(None, gt=0, le=1e12, description="seconds; None: never")

    @model_validator(mode="after")
    def _leaves_before_it_returns(self) -> Self:
        if self.returns is not None and self.returns <= self.leaves:
            raise ValueError(f"returns={self.returns:g} is not after leaves={self.leaves:g}")
        return self


_NO_TIME = Delay(model="constant", seconds=0.0)


class Network(Section):
    """The simulated world: how long everything takes, and which edges are present.

    Only `tacit simulate` reads it.
    """

    compute: Delay = Field(Delay(), description="one local step of an edge")
    uplink: Delay = Field(_NO_TIME, description="a message to the server")
    downlink: Delay = Field(_NO_TIME, description="a model to an edge")
    start: Literal["together", "cyclic"] = Field(
        "together",
        description="cyclic: edge k begins k/K of a task later, so that constant times make "
        "edges take turns",
    )
    slow_tasks: float = Field(
        0.0, ge=0, le=1, description="probability that a task takes slow_factor times as long"
    )
    slow_factor: float = Field(2.0, ge=1, le=1e6, description="see slow_tasks")
    stragglers: int = Field(
        0, ge=0, le=10_000, description="this many edges, the last ones, are always slow"
    )
    straggler_factor: float = Field(
        10.0, ge=1, le=1e6, description="how many times as slow those are"
    )
    drop_out: float = Field(
        0.0, ge=0, lt=1, description="probability that an edge is gone for good after a task"
    )
    online_s: float | None = Field(
        None, ge=1e-3, le=1e12, description="mean seconds that an edge is present; None: always"
    )
    offline_s: float = Field(1.0, ge=1e-3, le=1e12, description="mean seconds that it is then away")
    away: tuple[Away, ...] = Field((), strict=False, description="absences by schedule")
    staleness: int | None = Field(
        None,
        ge=0,
        le=10_000,
        description="no clock: an update's staleness is uniform in 0 … this (FedAsync, section 6)",
    )


class Evaluation(Section):
    """Evaluation on the public test set, at the aggregator, and on rows that edges hold out."""

    every: int = Field(250, gt=0, description="applied updates between two evaluations")
    samples: int = Field(
        2000, gt=0, description="test rows used while training; the last one uses all"
    )
    metrics: tuple[str, ...] = Field(
        (),
        strict=False,
        description="accuracy, auc, average_precision, per_class, rmse, mae, perplexity, log_loss, "
        'per_label, deviance, nll, concordance, or your own "module:function"; left out: those '
        "that fit the target",
    )
    at: Literal["server", "edges"] = Field(
        "server",
        description="edges: each edge also judges the model on rows of its own that it holds out, "
        "and releases noisy counts; no public test set is needed",
    )
    held_out: float = Field(
        0.2,
        ge=0.01,
        le=0.9,
        description="at edges: the share of units that judge, for the life of the data",
    )
    epsilon: Positive = Field(
        0.3,
        description="at edges: budget of all looks together; it comes on top of privacy.epsilon",
    )
    looks: int = Field(
        5,
        gt=0,
        le=50,
        description="at edges: how often the model is judged, spread over run.updates; the last "
        "look is at the end",
    )
    largest_error: Positive | None = Field(
        None,
        description="at edges, of a number: the largest error that counts, in the file's unit; "
        "left out: a quarter of what lies between its bounds, or twice its scale",
    )

    @property
    def at_edges(self) -> bool:
        """Whether edges judge on rows that they hold out."""
        return self.at == "edges"

    @model_validator(mode="after")
    def _keys_of_edges(self) -> Self:
        for key in ("held_out", "epsilon", "looks", "largest_error"):
            if not self.at_edges and getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(
                    f'{key}={getattr(self, key)}: is for at = "edges"; say so, or leave it out'
                )
        return self


class Guard(Section):
    """What the server refuses beyond malformed messages; all of it is off by default.

    See docs/privacy.md. `sums`, `agreement` and `rule` decide what the model becomes, so they
    cannot change during a run.
    """

    norm_factor: float | None = Field(
        None,
        ge=1,
        le=1000,
        description="refuse an update that is longer than a batch of this many times L and its "
        "noise can make it",
    )
    false_alarm: float = Field(
        1e-9, gt=0, le=0.1, description="largest probability of refusing an honest update"
    )
    rate: Positive | None = Field(
        None, description="messages a second of one edge, in the long run"
    )
    burst: int = Field(5, gt=0, le=10_000, description="messages of one edge at once, under `rate`")
    quarantine_after: int | None = Field(
        None, gt=0, description="refusals after which an edge's messages are ignored"
    )
    sums: bool = Field(
        False,
        description="quarantine an edge whose updates, taken together, cannot come from any data "
        "with the noise that is due; `false_alarm` is then for a whole run",
    )
    rows: float = Field(
        1.25,
        ge=1,
        le=1000,
        description="sums: the most rows that an edge may have, in multiples of its nominal number",
    )
    agreement: bool = Field(
        False,
        description="edges that work against the others, or pull much further than they do, count "
        "for less; nobody is quarantined for it, as other data may be the reason (needs `sums`; "
        "figures for unequal data: docs/attacks.md)",
    )
    rule: Rule = Field(
        "mean",
        description="how the updates of a round or a buffer become one: the plain mean, or in each "
        "coordinate the median, or the mean without `trim` values at either end",
    )
    trim: int = Field(1, gt=0, le=5_000, description="rule trimmed: values left out at either end")

    @property
    def active(self) -> bool:
        """Whether anything is on."""
        return (
            any(value is not None for value in (self.norm_factor, self.rate, self.quarantine_after))
            or self.sums
            or self.rule != "mean"
        )

    @model_validator(mode="after")
    def _agreement_of_sums(self) -> Self:
        if self.agreement and not self.sums:
            raise ValueError("agreement=true: it is of the edges' sums; set guard.sums = true")
        if self.trim != 1 and self.rule != "trimmed":
            raise ValueError(f'trim={self.trim}: rule={self.rule} trims nothing; say "trimmed"')
        return self


class Tracking(Section):
    """Where the aggregator also writes what metrics.jsonl has. Off by default.

    In a federation a submitted run has no such section: it is of the machine that it is read on.
    """

    mlflow: str | None = Field(
        None,
        min_length=1,
        description="tracking URI of MLflow, as http://HOST:PORT or sqlite:///FILE; a password is "
        "for MLFLOW_TRACKING_PASSWORD",
    )
    tensorboard: str | None = Field(
        None, min_length=1, description="folder of event files for TensorBoard, beside the run file"
    )
    wandb: str | None = Field(
        None,
        min_length=1,
        description="project of Weights & Biases; WANDB_MODE=offline writes into the results alone",
    )

    @property
    def extras(self) -> tuple[str, ...]:
        """The trackers that are on, which are also the names of their extras."""
        return tuple(name for name in type(self).model_fields if getattr(self, name) is not None)

    @field_validator("mlflow")
    @classmethod
    def _without_password(cls, uri: str | None) -> str | None:
        if uri is not None and "@" in uri.partition("://")[2].partition("/")[0]:
            raise ValueError(
                "has a password, and a run file is no secret; set MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD"
            )
        return uri
