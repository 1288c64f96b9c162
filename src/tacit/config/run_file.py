"""The run file: TOML → frozen pydantic models. Unknown keys, impossible values and contradictions are refused.

Everything here is public: a run file never holds a number computed from private data.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import BaseModel, ValidationError, model_validator

from tacit.config import fingerprint as definition
from tacit.config import fingerprint_0_1
from tacit.config.algorithms import CENTRALISED, Algorithm, FedAsync, Gossip, Mapa, Vafl
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
from tacit.models import Model, build, checked_size
from tacit.models.zoo.embeddings import head
from tacit.privacy.policy import Terms
from tacit.privacy.release import Plan

_NOT_THE_RUNS = ("guard", "network")  # sections that a fingerprint leaves out


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
            allowed = getattr(a, "max_staleness", None)
            if allowed is None or a.name == "fedavg":
                raise ValueError(f"network.staleness={network.staleness}: {a.name} works in rounds, nothing is stale")
            if network.staleness > allowed:
                raise ValueError(f"network.staleness={network.staleness} is above algorithm.max_staleness={allowed}")
        return self

    @model_validator(mode="after")
    def _participation(self) -> Self:
        edges, name = self.edges, self.algorithm.name
        if edges.needed > edges.count:
            raise ValueError(f"edges.min={edges.min} is above edges.count={edges.count}; more than will ever come")
        if edges.min is not None and isinstance(self.algorithm, Gossip | Vafl):
            why = "waits for all its parties" if isinstance(self.algorithm, Vafl) else "has no server to wait at"
            raise ValueError(f"edges.min={edges.min}: {name} {why}; leave it out")
        if edges.share == "budget" and not self.in_turn:
            raise ValueError(f"edges.share=budget: {name} here has rounds, a queue or peers of its own; leave it out")
        if edges.share == "budget" and not self.privacy.private:
            raise ValueError(f"edges.share=budget: privacy.mechanism={self.privacy.mechanism} spends none; use rows")
        return self

    @property
    def in_turn(self) -> bool:
        """Whether each edge is answered for itself, so that one could take more than its share (`edges.share`)."""
        a = self.algorithm
        return isinstance(a, Mapa) or (isinstance(a, FedAsync) and a.name != "fedavg" and a.concurrency is None)

    def weight(self, edge: str) -> float:
        """The share of the edge called `edge`, where an ordinary one has 1: of what the run file says, nothing else."""
        if self.edges.share == "budget":
            return self.epsilon(self.index(edge)) / self.privacy.epsilon
        number = edge.removeprefix("edge-")
        dealt = number.isdecimal() and len(number) < 10 and int(number) < self.edges.count
        return 1.0 if dealt or not self.data.spare else self.data.spare_weight

    def public_size(self) -> int:
        """n_public: the nominal rows of one edge's part, a function of public numbers only."""
        data = self.data
        if isinstance(self.algorithm, Vafl):  # everybody holds something of everybody
            return train_size(data.dataset)
        return nominal_size(
            train_size(data.dataset, data.text),
            shards=self.edges.count,
            spare=data.spare,
            spare_weight=data.spare_weight,
        )

    @property
    def counted(self) -> str:
        """What `run.updates` counts: the versions of the model, in the words of the algorithm."""
        a = self.algorithm
        uploads = 1 if isinstance(a, Vafl) else a.uploads(self.edges.count)
        unit = {"fedavg": "rounds", "dp-pasgd": "rounds", "sync": "steps", "fedbuff": "buffers"}.get(a.name, "updates")
        return unit if uploads == 1 else f"{unit} of {uploads} updates"

    def capacity(self) -> int | None:
        """Versions that the budgets of `edges.count` edges pay for together; None: not known from the file alone."""
        p, a = self.privacy, self.algorithm
        if not p.private or p.noise_multiplier is not None or (isinstance(a, Vafl) and a.mode != "trained"):
            return None
        steps = a.steps if p.noise_at == "edge" else 1
        return p.pushes // steps * self.edges.count // a.uploads(self.edges.count)

    def build_model(self) -> Model:
        """The model of this run, a vertical one's θ_0. Raises ConfigError when its layers do not fit data or memory."""
        shape, classes = shape_of(self.data.dataset, self.data.features, self.data.text)
        model, a = self.model, self.algorithm
        if isinstance(a, Vafl):
            hidden = model.hidden if model.name == "mlp" else ()
            return checked_size(head(a.combine, self.edges.count, a.width, classes, hidden))
        made = build(
            model.name, shape, classes, channels=model.channels, kernel=model.kernel, hidden=model.hidden,
            regularization=model.regularization, activation=model.activation, normalization=model.normalization,
            pool_every=model.pool_every, embedding=model.embedding, width=model.width, blocks=model.blocks,
        )  # fmt: skip
        return checked_size(made)

    def plan(self, index: int, dealt: int = 0) -> Plan:
        """The privacy plan of edge number `index`: its own ε_k, one z calibrated for it.

        dealt: how many rows the dealing of a published data set gives this edge, a public number, for which the
        shapes of its batches are made; 0: not known, so for a quarter more than the public size.
        """
        return replace(self._plan(index), rows_max=dealt)

    def plans(self) -> list[Plan]:
        """The plan of every edge that the run deals its data to, spare ones too; those with no ε of their own: once."""
        different = min(self.edges.count + self.data.spare, len(self.edges.epsilon) + 1)
        return [self.plan(index) for index in range(different)]

    def epsilon(self, index: int) -> float:
        """ε_k of edge number `index`: its budget, for all its pushes together."""
        return self.edges.epsilon[index] if index < len(self.edges.epsilon) else self.privacy.epsilon

    def index(self, edge: str) -> int:
        """The number of the edge called `edge`; of whom the run does not know, that of one with no ε of its own."""
        number, other = edge.removeprefix("edge-"), len(self.edges.epsilon)
        return min(int(number), other) if number.isdecimal() and len(number) < 10 else other

    def _plan(self, index: int) -> Plan:
        p, epsilon = self.privacy, self.epsilon(index)
        rate = self.sampling_rate()
        bounds = (p.clip_min, p.clip_max)
        if not p.private:
            return Plan(p.mechanism, rate, p.batch, 0.0, *bounds, epsilon, p.delta, p.paper_epsilon)
        if p.noise_multiplier is not None:
            z = p.noise_multiplier
            return Plan(p.mechanism, rate, p.batch, z, *bounds, epsilon, p.delta, noise_at=p.noise_at)
        return Plan.calibrated(
            epsilon=epsilon,
            delta=p.delta,
            pushes=p.pushes,
            sampling_rate=rate,
            batch=p.batch,
            clip_min=p.clip_min,
            clip_max=p.clip_max,
            mechanism=p.mechanism,
            noise_at=p.noise_at,
        )

    def sampling_rate(self) -> float:
        """q of every push: L over n_public; 1 where the noise covers a whole edge, which has no secret to sample."""
        return 1.0 if self.privacy.noise_at == "server" else min(1.0, self.privacy.batch / self.public_size())

    def terms(self) -> Terms:
        """What the server takes for granted of every edge; z only where the file states one for all."""
        p = self.privacy
        mechanism = p.mechanism if p.noise_at == "edge" else f"{p.mechanism}@{p.noise_at}"
        return Terms(mechanism, self.sampling_rate(), p.noise_multiplier if p.private else None)

    def fingerprint(self) -> str:
        """SHA-256 of what differs from the defaults: two run files that mean the same have the same one.

        [guard] is left out: what it refuses is not in the journal, so it may change while a run goes on. So is
        [network], which only the simulator reads.
        """
        different = definition.differences(self)
        return definition.name("run", {key: value for key, value in different.items() if key not in _NOT_THE_RUNS})

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
        raise ConfigError(f"{origin}: {one_line(error)}") from error
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


def one_line(error: ValidationError) -> str:
    """All problems in one line, each with its field and value; pydantic's own text is a page."""
    problems = []
    for item in error.errors(include_url=False):
        field = ".".join(str(part) for part in _location(item["loc"])) or "run file"
        message = item["msg"].removeprefix("Value error, ")
        shown = "" if isinstance(item["input"], dict | BaseModel) else f"={item['input']!r}"
        if item["type"] == "extra_forbidden":
            message = f"unknown key{_meant(_location(item['loc']))}"
        elif item["type"] == "missing":
            shown = ""
        elif item["type"] == "union_tag_invalid":
            field, shown = f"{field}.name", f"={item['ctx']['tag']!r}"
            message = f"is not known; use one of: {item['ctx']['expected_tags']}"
        elif item["type"] == "union_tag_not_found":
            field, message = f"{field}.name", "Field required"
        problems.append(message if field == "run file" and not shown else f"{field}{shown}: {message}")
    return "; ".join(problems)


def _meant(location: tuple[int | str, ...]) -> str:
    """For the key at `location`, which no section has: the one that was probably meant."""
    kinds: list[type[BaseModel]] = [RunFile]
    for name in location[:-1]:
        kinds = [found for kind in kinds if name in kind.model_fields for found in sections_of(kind, str(name))]
    known = {name for kind in kinds for name in kind.model_fields}
    if location[-1] in known:  # of another algorithm, then
        return ": it belongs to another " + str(location[-2] if len(location) > 1 else "section")
    close = get_close_matches(str(location[-1]), sorted(known), 1)
    return f"; did you mean {close[0]}?" if close else ""


def sections_of(kind: type[BaseModel], name: str) -> list[type[BaseModel]]:
    """The section, or the sections one of which is chosen, that key `name` of `kind` holds; none for a plain value."""
    todo: list[Any] = [kind.model_fields[name].annotation]
    found = []
    while todo:
        annotation = todo.pop(0)
        todo.extend(get_args(annotation))
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            found.append(annotation)
    return found


def _location(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    # The name that chose the section's class is not a key of the file.
    return location[:1] + location[2:] if location[:1] == ("algorithm",) else location
