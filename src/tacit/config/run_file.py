"""The run file: TOML → frozen pydantic models. Unknown keys, impossible values and contradictions are refused.

Everything here is public: a run file never holds a number computed from private data.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError, model_validator

from tacit.config import fingerprint as names
from tacit.config import fingerprint_0_1
from tacit.config.algorithms import CENTRALISED, Algorithm
from tacit.config.complaints import one_line
from tacit.config.definition import Definition
from tacit.config.plans import Plans
from tacit.config.sections import (
    GAUSSIAN,
    Data,
    Edges,
    Evaluation,
    Guard,
    ModelSection,
    Network,
    Privacy,
    Run,
    Section,
)
from tacit.datasets import group_count, is_text, nominal_size, shape_of, train_size
from tacit.errors import ConfigError
from tacit.models import Model, checked_size
from tacit.privacy.policy import Terms
from tacit.privacy.release import Plan
from tacit.privacy.report import Promise

_NOT_THE_RUNS = ("guard", "network")  # sections that a fingerprint leaves out
_NO_START = {"party": "waits for all its parties", "peer": "has no server to wait at"}  # edges.min is not theirs


class RunFile(Section):
    """A whole run file."""

    run: Run
    data: Data
    model: ModelSection
    algorithm: Algorithm
    privacy: Privacy = Privacy()
    edges: Edges = Edges()
    evaluation: Evaluation = Evaluation()
    guard: Guard = Guard()
    network: Network = Network()

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
        self.algorithm.agree(self)
        rows = self.public_size()
        if self.privacy.private and self.privacy.batch > rows:
            raise ValueError(f"privacy.batch={self.privacy.batch} is above the {rows} rows of one edge")
        for name, each in (("epsilon", self.edges.epsilon), ("slowdown", self.edges.slowdown)):
            if len(each) > self.edges.count:
                raise ValueError(f"edges.{name} names {len(each)} edges, edges.count={self.edges.count}")
        return self

    @model_validator(mode="after")
    def _data_fits(self) -> Self:
        name, data = self.model.name, self.data
        if data.features != "none" and name not in ("logistic", "svm"):
            raise ValueError(f"data.features={data.features}: needs model.name logistic or svm, not {name}")
        if is_text(data.dataset) != (name == "lstm"):
            raise ValueError(f"model.name={name}: lstm is for text and text for lstm, data.dataset={data.dataset}")
        if data.partition == "natural" and self.edges.count > (groups := group_count(data.dataset)):
            raise ValueError(f"edges.count={self.edges.count} is above the {groups} groups of {data.dataset}")
        return self

    @model_validator(mode="after")
    def _network_agrees(self) -> Self:
        network, edges, a = self.network, self.edges, self.algorithm
        if any(away.edge >= edges.count for away in network.away):
            raise ValueError(f"network.away: an edge is not below edges.count={edges.count}")
        if network.staleness is not None:
            allowed = a.oldest
            if allowed is None:
                raise ValueError(f"network.staleness={network.staleness}: {a.name} works in rounds, nothing is stale")
            if network.staleness > allowed:
                raise ValueError(f"network.staleness={network.staleness} is above algorithm.max_staleness={allowed}")
        return self

    @model_validator(mode="after")
    def _participation(self) -> Self:
        edges, name = self.edges, self.algorithm.name
        if edges.needed > edges.count:
            raise ValueError(f"edges.min={edges.min} is above edges.count={edges.count}; more than will ever come")
        if edges.min is not None and (why := _NO_START.get(self.algorithm.worker)):
            raise ValueError(f"edges.min={edges.min}: {name} {why}; leave it out")
        if edges.share == "budget" and not self.algorithm.in_turn:
            raise ValueError(f"edges.share=budget: {name} here has rounds, a queue or peers of its own; leave it out")
        if edges.share == "budget" and not self.privacy.private:
            raise ValueError(f"edges.share=budget: privacy.mechanism={self.privacy.mechanism} spends none; use rows")
        return self

    def public_size(self) -> int:
        """n_public: the nominal rows of one edge's part, a function of public numbers only."""
        data = self.data
        rows = train_size(data.dataset, data.text)
        if self.algorithm.columns:
            return rows
        return nominal_size(rows, shards=self.edges.count, spare=data.spare, spare_weight=data.spare_weight)

    @property
    def counted(self) -> str:
        """What `run.updates` counts: the versions of the model, in the words of the algorithm."""
        return self.algorithm.counted(self.edges.count)

    def capacity(self) -> int | None:
        """Versions that the budgets of `edges.count` edges pay for together; None: not known from the file alone."""
        return self.algorithm.capacity(self.privacy, self.edges.count)

    def sampling_rate(self) -> float:
        """q of every push: L over n_public; 1 where the noise covers a whole edge, which has no secret to sample."""
        return 1.0 if self.privacy.noise_at == "server" else min(1.0, self.privacy.batch / self.public_size())

    # -- built for those who need it ----------------------------------------------------------------------------

    def build_model(self) -> Model:
        """The model of this run, a vertical one's θ_0. Raises ConfigError when its layers do not fit data or memory."""
        shape, classes = shape_of(self.data.dataset, self.data.features, self.data.text)
        return checked_size(self.algorithm.build_model(self.model, shape, classes, self.edges.count))

    def plan(self, index: int, dealt: int = 0) -> Plan:
        """The privacy plan of edge number `index`, as `plans` has it."""
        return self.plans().plan(index, dealt)

    def plans(self) -> Plans:
        """The privacy plans of all edges."""
        p = self.privacy
        z = p.noise_multiplier or 0.0 if p.private else 0.0
        like = Plan(
            p.mechanism,
            self.sampling_rate(),
            p.batch,
            z,
            p.clip_min,
            p.clip_max,
            p.epsilon,
            p.delta,
            p.paper_epsilon,
            p.noise_at,
        )
        calibrated = p.private and p.noise_multiplier is None
        workers = self.edges.count + self.data.spare
        return Plans(like, p.pushes if calibrated else None, self.edges.epsilon, workers)

    def define(self) -> Definition[Any]:
        """What the roles of this run are built from."""
        p, plans = self.privacy, self.plans()
        return Definition(
            algorithm=self.algorithm,
            dataset=self.data.dataset,
            horizon=self.run.updates,
            seed=self.run.seed,
            workers=self.edges.count,
            batch=p.batch,
            clip=p.constant_clip,
            privacy=p,
            terms=Terms(p.declared, plans.like.sampling_rate, p.noise_multiplier if p.private else None),
            plans=plans,
            evaluation=self.evaluation,
            needed=self.edges.needed,
            wait=self.edges.wait,
            share=self.edges.share,
            spare_weight=self.data.spare_weight if self.data.spare else 1.0,
        )

    def promise(self) -> Promise:
        """What it says of its privacy to everybody."""
        a, p = self.algorithm, self.privacy
        return Promise(
            guarantee=a.guarantee(p.noise_at),
            composition=a.composition,
            private=p.private,
            delta=p.delta,
            batch=p.batch,
            clip=a.clipping(p),
            mechanism=a.mechanism(p),
            budget=self.plans().budget,
            labels_epsilon=a.labels_epsilon,
        )

    # -- its name -----------------------------------------------------------------------------------------------

    def fingerprint(self) -> str:
        """SHA-256 of what differs from the defaults: two run files that mean the same have the same one.

        [guard] is left out: what it refuses is not in the journal, so it may change while a run goes on. So is
        [network], which only the simulator reads.
        """
        different = names.differences(self)
        return names.name("run", {key: value for key, value in different.items() if key not in _NOT_THE_RUNS})

    def older_fingerprints(self) -> tuple[str, ...]:
        """What earlier versions of tacit called this run. A store that knows it by one of these goes on."""
        first = fingerprint_0_1.fingerprint(self, self.algorithm.name)
        return () if first is None else (first,)


def parse(text: str, origin: str, *, edges: int | None = None, seed: int | None = None) -> RunFile:
    """Check the TOML `text`; `edges` and `seed` replace edges.count and run.seed where given.

    CSGD and SGD are centralised: they keep their one edge whatever `edges` says.
    Raises ConfigError with one line that names `origin`, the field and the value.
    """
    try:
        content = tomllib.loads(text)
        repr(content)  # what cannot be shown (0x and 5,000 digits) could not be complained about below
    except (ValueError, RecursionError) as error:  # also an integer of 5,000 digits, or as many brackets
        raise ConfigError(f"{origin}: not TOML: {error}") from error
    if _name(content) in CENTRALISED:
        edges = None
    for section, key, value in (("edges", "count", edges), ("run", "seed", seed)):
        if value is not None and isinstance(content.setdefault(section, {}), dict):
            content[section][key] = value
    try:
        return RunFile.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{origin}: {one_line(error, RunFile)}") from error
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
