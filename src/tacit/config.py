"""The run file: TOML → frozen pydantic models. Unknown keys, impossible values and contradictions are refused.

Everything here is public: a run file never holds a number computed from private data.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tacit.datasets import Features, nominal_size, shape_of, train_size
from tacit.errors import ConfigError
from tacit.messages import Terms
from tacit.models import Model, Normalization, build
from tacit.privacy.plan import PRIVATE, Mechanism, NoiseAt, Plan

GAUSSIAN = ("gaussian", "discrete_gaussian")
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Clip = Annotated[float, Field(ge=1e-6, le=1e6)]  # where float32 squares and sums of gradients are exact enough


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Run(_Section):
    """What to run and for how long."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    updates: int = Field(gt=0, description="T: updates applied before Halt")
    seed: int = Field(1, ge=0, lt=2**63, description="initial model and data partition; never the noise")
    snapshot_every: int = Field(200, gt=0, description="applies between two snapshots of the journal")


class Data(_Section):
    """Which data, and how the testbed deals it to the edges."""

    dataset: str
    features: Features = Field("none", description="what a linear model sees: pixels, or wavelet scattering of them")
    partition: Literal["iid", "dirichlet", "shards"] = "iid"
    alpha: Positive = 0.5
    spare: int = Field(0, ge=0, le=1000, description="parts kept for edges that may join later")
    spare_weight: float = Field(0.25, gt=0, le=1, description="size of a spare part, relative to a main one")


class ModelSection(_Section):
    """The model and its layer sizes."""

    name: Literal["logistic", "svm", "cnn"]
    channels: tuple[int, int] = Field((10, 20), strict=False)  # TOML has no tuples
    kernel: int = Field(5, ge=1, le=15)
    hidden: tuple[Annotated[int, Field(gt=0)], ...] = Field((), strict=False)
    activation: Literal["relu", "tanh"] = "relu"
    regularization: float = Field(0.0, ge=0, allow_inf_nan=False, description="λ of (λ/2)||x||², paper: 1e-4")
    normalization: Normalization = Field("none", description="group: the convolutions' outputs, per example")

    @field_validator("normalization", mode="before")
    @classmethod
    def _per_example(cls, value: Any) -> Any:
        if value == "batch":
            raise ValueError("batch normalization looks across examples, so clipping bounds nobody; use group")
        return value


class Algorithm(_Section):
    """MAPA and its three relatives (Table II). Letters are the paper's."""

    name: Literal["mapa", "audp", "asgd", "csgd"]
    smoothness: Positive = Field(10.0, description="L, Lipschitz constant of the gradient")
    deviation: float = Field(30.0, ge=0, le=1e9, description="σ, standard deviation of a gradient")
    radius: Positive = Field(1.0, description="R, radius of the space")
    reduction: float = Field(0.5, ge=0.01, lt=1, description="θ, reduction ratio of the clip norm per stage")
    initial_gap: Positive = Field(2.3, description="f(x_1) - f(x*), a public guess; ln 10 for ten classes")
    failure: float = Field(1e-3, gt=0, lt=1, description="δ of eq. (12), for the first clip norm only")
    max_staleness: int = Field(100, gt=0, description="older updates are refused as stale")


class Privacy(_Section):
    """Each edge's own privacy configuration."""

    mechanism: Mechanism = "discrete_gaussian"
    noise_at: NoiseAt = Field("edge", description="server: a trusted aggregator; the unit is then an edge")
    epsilon: Positive = Field(2.0, description="budget of an edge's data, for all its pushes together")
    delta: float = Field(1e-5, gt=0, lt=1)
    pushes: int = Field(1000, gt=0, description="pushes of one edge that the budget must cover")
    batch: float = Field(256.0, ge=1, allow_inf_nan=False, description="b = L: expected batch size, fixed denominator")
    noise_multiplier: float | None = Field(None, ge=0.1, le=1e6, description="z; None: calibrated from ε, δ, pushes")
    clip: Clip | None = Field(None, description="first C; None: by eq. (12)")
    clip_min: Clip = 0.1
    clip_max: Clip = 100.0
    paper_epsilon: Positive = Field(0.1, description="ε per push in the paper's own accounting (mechanism paper)")

    @property
    def private(self) -> bool:
        """Whether a guarantee stands behind the mechanism."""
        return self.mechanism in PRIVATE

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.clip_min > self.clip_max:
            raise ValueError(f"clip_min={self.clip_min} is above clip_max={self.clip_max}")
        if self.noise_at == "server" and self.mechanism != "gaussian":
            raise ValueError(f"mechanism={self.mechanism}: noise_at=server knows gaussian only; say so")
        if self.private and self.clip is not None and not self.clip_min <= self.clip <= self.clip_max:
            raise ValueError(f"clip={self.clip} is outside [clip_min={self.clip_min}, clip_max={self.clip_max}]")
        return self


class Edges(_Section):
    """How many edges, and what sets them apart."""

    count: int = Field(5, gt=0, le=10_000, description="K: edges that the data is dealt to")
    epsilon: tuple[Positive, ...] = Field((), strict=False, description="ε_k of edge k, where not privacy.epsilon")


class Evaluation(_Section):
    """Evaluation on the public test set, at the aggregator."""

    every: int = Field(250, gt=0, description="applied updates between two evaluations")
    samples: int = Field(2000, gt=0, description="test rows used while training; the last one uses all")


class Guard(_Section):
    """What the server refuses beyond what is malformed; everything is off by default (docs/privacy.md)."""

    norm_factor: float | None = Field(
        None, ge=1, le=1000, description="refuse updates longer than of a batch of so many times L, with its noise"
    )
    false_alarm: float = Field(1e-9, gt=0, le=0.1, description="probability to refuse an honest update, at most")
    rate: Positive | None = Field(None, description="messages a second of one edge, in the long run")
    burst: int = Field(5, gt=0, le=10_000, description="messages of one edge at once, under `rate`")
    quarantine_after: int | None = Field(None, gt=0, description="refusals after which an edge is heard no more")

    @property
    def active(self) -> bool:
        """Whether anything is on."""
        return any(value is not None for value in (self.norm_factor, self.rate, self.quarantine_after))


class RunFile(_Section):
    """A whole run file."""

    run: Run
    data: Data
    model: ModelSection
    algorithm: Algorithm
    privacy: Privacy = Privacy()
    edges: Edges = Edges()
    evaluation: Evaluation = Evaluation()
    guard: Guard = Guard()

    @model_validator(mode="after")
    def _noise_is_known(self) -> Self:
        p = self.privacy
        if self.guard.norm_factor is not None and (p.mechanism not in GAUSSIAN or p.noise_at != "edge"):
            raise ValueError(
                f"guard.norm_factor: privacy.mechanism={p.mechanism} at the {p.noise_at} gives no bound; only gaussian "
                "and discrete_gaussian at the edge do"
            )
        return self

    @model_validator(mode="after")
    def _agree(self) -> Self:
        rows, private = self.public_size(), self.privacy.private
        if self.algorithm.name in ("asgd", "csgd") and self.privacy.mechanism != "none":
            mechanism = self.privacy.mechanism
            raise ValueError(f"privacy.mechanism={mechanism}: {self.algorithm.name} is not private; say none")
        if self.algorithm.name in ("mapa", "audp") and self.privacy.mechanism == "none":
            raise ValueError(f"privacy.mechanism=none: {self.algorithm.name} needs noise; use asgd without it")
        if private and self.privacy.batch > rows:
            raise ValueError(f"privacy.batch={self.privacy.batch} is above the {rows} rows of one edge")
        if self.privacy.mechanism.startswith("paper") and self.algorithm.deviation == 0 and self.privacy.clip is None:
            raise ValueError("algorithm.deviation=0.0: eq. (12) gives no clip norm; set privacy.clip")
        if self.data.features != "none" and self.model.name == "cnn":
            raise ValueError(f"data.features={self.data.features}: needs model.name logistic or svm, not cnn")
        if self.algorithm.name == "csgd" and self.edges.count != 1:
            raise ValueError(f"edges.count={self.edges.count}: csgd is centralised, one edge holds all the data")
        if len(self.edges.epsilon) > self.edges.count:
            raise ValueError(f"edges.epsilon names {len(self.edges.epsilon)} edges, edges.count={self.edges.count}")
        return self

    def public_size(self) -> int:
        """n_public: the nominal rows of one edge's part, a function of public numbers only."""
        data = self.data
        return nominal_size(
            train_size(data.dataset), shards=self.edges.count, spare=data.spare, spare_weight=data.spare_weight
        )

    def capacity(self) -> int | None:
        """Pushes that the budgets of `edges.count` edges pay for together; None: not known from the file alone."""
        p = self.privacy
        if not p.private or p.noise_multiplier is not None:
            return None
        return p.pushes * self.edges.count

    def build_model(self) -> Model:
        """The model of this run. Raises ConfigError when its layers do not fit the data's shape."""
        shape, classes = shape_of(self.data.dataset, self.data.features)
        model = self.model
        return build(
            model.name, shape, classes, channels=model.channels, kernel=model.kernel, hidden=model.hidden,
            regularization=model.regularization, activation=model.activation, normalization=model.normalization,
        )  # fmt: skip

    def plan(self, index: int) -> Plan:
        """The privacy plan of edge number `index`: its own ε_k, one z calibrated for it."""
        p = self.privacy
        epsilon = self.edges.epsilon[index] if index < len(self.edges.epsilon) else p.epsilon
        rate = self.sampling_rate()
        bounds = (p.clip_min, p.clip_max)
        if not p.private:
            return Plan(p.mechanism, rate, p.batch, 0.0, *bounds, epsilon, p.delta, p.paper_epsilon)
        if p.noise_multiplier is not None:
            z = p.noise_multiplier
            return Plan(p.mechanism, rate, p.batch, z, *bounds, epsilon, p.delta, noise_at=p.noise_at)
        return Plan.calibrated(
            epsilon=epsilon, delta=p.delta, pushes=p.pushes, sampling_rate=rate, batch=p.batch,
            clip_min=p.clip_min, clip_max=p.clip_max, mechanism=p.mechanism, noise_at=p.noise_at,
        )  # fmt: skip

    def sampling_rate(self) -> float:
        """q of every push: L over n_public; 1 where the noise covers a whole edge, which has no secret to sample."""
        return 1.0 if self.privacy.noise_at == "server" else min(1.0, self.privacy.batch / self.public_size())

    def terms(self) -> Terms:
        """What the server takes for granted of every edge; z only where the file states one for all."""
        p = self.privacy
        mechanism = p.mechanism if p.noise_at == "edge" else f"{p.mechanism}@{p.noise_at}"
        return Terms(mechanism, self.sampling_rate(), p.noise_multiplier if p.private else None)

    def fingerprint(self) -> str:
        """SHA-256 of every parameter: two run files that mean the same have the same one.

        [guard] is left out: what it refuses is not in the journal, so it may change while a run goes on.
        """
        return hashlib.sha256(self.model_dump_json(exclude={"guard"}).encode()).hexdigest()


def parse(text: str, origin: str, *, edges: int | None = None, seed: int | None = None) -> RunFile:
    """Check the TOML `text`; `edges` and `seed` replace edges.count and run.seed where given.

    CSGD is centralised: it keeps its one edge whatever `edges` says.
    Raises ConfigError with one line that names `origin`, the field and the value.
    """
    try:
        content = tomllib.loads(text)
        repr(content)  # what cannot be shown (0x and 5,000 digits) could not be complained about below
    except (ValueError, RecursionError) as error:  # also an integer of 5,000 digits, or as many brackets
        raise ConfigError(f"{origin}: not TOML: {error}") from error
    if _name(content) == "csgd":
        edges = None
    for section, key, value in (("edges", "count", edges), ("run", "seed", seed)):
        if value is not None and isinstance(content.setdefault(section, {}), dict):
            content[section][key] = value
    try:
        return RunFile.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{origin}: {_one_line(error)}") from error
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from error


def load(path: Path, *, edges: int | None = None, seed: int | None = None) -> RunFile:
    """Read and check a run file. Raises ConfigError (missing, unreadable, or wrong)."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"run file {path}: {error}") from error
    return parse(text, str(path), edges=edges, seed=seed)


def _name(content: dict[str, Any]) -> Any:
    algorithm = content.get("algorithm")
    return algorithm.get("name") if isinstance(algorithm, dict) else None


def _one_line(error: ValidationError) -> str:
    # All problems, in one line, each with its field and value; pydantic's own text is a page.
    problems = []
    for item in error.errors(include_url=False):
        field = ".".join(str(part) for part in item["loc"]) or "run file"
        message = item["msg"].removeprefix("Value error, ")
        shown = "" if isinstance(item["input"], dict | BaseModel) else f"={item['input']!r}"
        if item["type"] == "extra_forbidden":
            message = "unknown key"
        problems.append(message if field == "run file" and not shown else f"{field}{shown}: {message}")
    return "; ".join(problems)
