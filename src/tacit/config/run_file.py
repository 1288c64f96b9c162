"""The run file: TOML in, frozen pydantic models out.

Idea. One file defines a run. Its sections, under the names that a user writes, are what the rest of
tacit reads: `define` puts them into a `Definition`, and adds only what follows from them.

What a reader finds. `RunFile` lists the sections, checks that they agree (`sections_agree`), fills
in what its author left out (`derived_defaults`), and makes the run's plans, model, fingerprint and
definition. `parse` and `load`, at the end, read text and files.

Guarantee. Unknown keys, impossible values and contradictions are refused, in one line that names
the field and its value. Everything here is public: a run file never holds a number computed from
private data.

>>> text = '''
... run.updates = 1000
... data.dataset = "digits"
... model.name = "logistic"
... algorithm.name = "mapa"
... '''
>>> run = parse(text, "run.toml")
>>> run.privacy.epsilon, run.edges.count, run.define().evaluation.every
(2.0, 5, 250)
>>> parse(text + "edges.cuont = 3", "run.toml")
Traceback (most recent call last):
tacit.errors.ConfigError: run.toml: edges.cuont=3: unknown key; did you mean count?
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pydantic import (
    PrivateAttr,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from tacit import regular_file
from tacit.config import derived_defaults, sections_agree
from tacit.config import fingerprint as names
from tacit.config.algorithm_contract import AlgorithmSection
from tacit.config.algorithm_entries import BUILT_IN, algorithm_section, built_in, with_implied
from tacit.config.asked import AskSection, with_what_follows
from tacit.config.complaints import faults, one_line
from tacit.config.data import Data, is_own_data, with_counts
from tacit.config.definition import Definition, worker_names
from tacit.config.edge_looks import Judging
from tacit.config.long_keys import refuse_long_keys
from tacit.config.model import ModelSection
from tacit.config.not_toml import what_to_write
from tacit.config.plans import Plans
from tacit.config.sections import Edges, Evaluation, Guard, Network, Privacy, Run, Section, Tracking
from tacit.config.site import (
    Site,
    members_own_in,
    of_federation,
    with_columns,
    without_keys_of_members,
    without_members_own,
)
from tacit.datasets import Source
from tacit.errors import ConfigError, ConfigFaults
from tacit.models import Model
from tacit.privacy.policy import Terms
from tacit.privacy.release import Plan

# Left out of a fingerprint: what no fold reads, so that it may change while a run goes on.
_NOT_THE_RUNS = (
    "network",
    "tracking",
    "run.stop",
    "guard.norm_factor",
    "guard.rate",
    "guard.burst",
    "guard.quarantine_after",
)
_NO_TRACKING = "tracking: a federation's run has none; leave it out, and read metrics by REST"
# Read by the aggregator alone, so edges need not agree on it.
THE_AGGREGATORS = (
    "guard",
    "evaluation.every",
    "evaluation.samples",
    "evaluation.metrics",
    "run.name",
    "run.snapshot_every",
    "run.average",
    "edges.min",
    "edges.wait",
    "edges.grace",
    "edges.share",
    "edges.slowdown",
    "algorithm.code",
)


class RunFile(Section):
    """A whole run file."""

    run: Run
    data: Data
    model: ModelSection
    algorithm: SerializeAsAny[AlgorithmSection]
    privacy: Privacy = Privacy()
    edges: Edges = Edges()
    evaluation: Evaluation = Evaluation()
    guard: Guard = Guard()
    network: Network = Network()
    ask: AskSection | None = None
    tracking: Tracking = Tracking()
    _folder: Path = PrivateAttr(default_factory=Path)
    _counted: tuple[str, ...] = PrivateAttr(())
    _site: Site | None = PrivateAttr(None)

    @property
    def folder(self) -> Path:
        """The folder of the run file, which its paths are relative to."""
        return self._folder

    @property
    def site(self) -> Site | None:
        """The member's own part, where this is a federation's run at one of its members."""
        return self._site

    @model_validator(mode="before")
    @classmethod
    def _with_what_follows(cls, content: Any) -> Any:
        return with_implied(with_what_follows(content))

    @field_validator("algorithm", mode="wrap")
    @classmethod
    def _named(
        cls, content: Any, _: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> AlgorithmSection:
        """Return the section of the algorithm that it names; an own one may be loaded."""
        context = info.context or {}
        folder = context.get("folder", Path())
        return algorithm_section(content, folder, own_code=context.get("own_code", False))

    @model_validator(mode="after")
    def _filled_and_checked(self, info: ValidationInfo) -> Self:
        """Fill in what follows from other sections, and check that the sections agree.

        A file is filled in as its author has `written` it. Every other source of a run file (a
        journal's header, a figure's runs) has it already.
        """
        context = info.context or {}
        # What is no key: the folder that paths are relative to, what was counted in files, and
        # what a member has for itself.
        self._folder = context.get("folder", Path())
        self._counted = context.get("counted", ())
        self._site = context.get("site")
        filled = self
        workers = self.edges.count
        traits = self.algorithm.traits(workers)
        rows = self._trained_rows()
        privacy = derived_defaults.with_whole_batch(self.privacy, rows, traits)
        if context.get("written", False):
            if missing := self.algorithm.lacking(self.privacy):
                raise ValueError(
                    f"algorithm.entry={self.algorithm.name}: its code is not here, so the run file "
                    f"must state {' and '.join(missing)}"
                )
            privacy = derived_defaults.filled(privacy, traits, self.run.updates, workers, rows)
        if privacy is not self.privacy:
            filled = self.model_copy(update={"privacy": privacy})
        sections_agree.agree(filled, traits, rows)
        if self._site is not None:
            self._check_site(self._site, rows)
        return filled

    def _check_site(self, site: Site, rows: int) -> None:
        """Raise ValueError for a number of rows that a member cannot state in this run."""
        traits = self.algorithm.traits(self.edges.count)
        if site.rows is None or traits.every_row:
            return
        if site.rows != rows and traits.passes:
            raise ValueError(
                f"--rows {site.rows}: {self.algorithm.name} takes passes over {rows} rows; leave "
                "--rows out"
            )
        if self.privacy.private and self.privacy.batch > site.rows:
            raise ValueError(
                f"--rows {site.rows}: a batch of this run is {self.privacy.batch:g} on average; "
                "with fewer rows a member cannot take part"
            )

    # -- what follows from its sections ------------------------------------------------------------

    @property
    def source(self) -> Source:
        """The run's data; of a federation's run at a member, the member's. Raises ConfigError."""
        if self._site is None:
            return self.data.source(self, self._folder)
        return self.data.source_at(self._site, self, self._folder)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what was counted in a private file because the run file does not say it."""
        return self._counted

    def plans(self) -> Plans:
        """Return the privacy plans of all edges, spare ones too.

        At a member that states its rows, they have its sampling rate. A release that reads every
        row reads them however many they are.
        """
        plans = self._plans_of_run()
        every_row = self.algorithm.traits(self.edges.count).every_row
        if self._site is None or self._site.rows is None or every_row:
            return plans
        return replace(plans, own_rows=self._without_held_out(self._site.rows))

    def _trained_rows(self) -> int:
        """Return n_public of an edge: without what it holds out, a public share."""
        rows = self.data.public_size(self.edges.count, self.algorithm.columns)
        return self._without_held_out(rows)

    def _without_held_out(self, rows: int) -> int:
        if not self.evaluation.at_edges:
            return rows
        return max(1, round(rows * (1 - self.evaluation.held_out)))

    def _plans_of_run(self) -> Plans:
        """Return the plans as the run's public `rows` have them, for every reader of the run
        file."""
        rows = self._trained_rows()
        passes = self.algorithm.traits(self.edges.count).passes
        workers = self.edges.count + self.data.spare
        privacy = self.data.of_each_worker(self.privacy)
        return privacy.plans(rows, self.edges.epsilon, workers, passes)

    def plan(self, index: int, dealt: int = 0) -> Plan:
        """Return the privacy plan of edge number `index`, as `plans` has it."""
        return self.plans().plan(index, dealt)

    def sampling_rate(self) -> float:
        """Return q of every push: L over n_public."""
        return self.plans().default.sampling_rate

    def fingerprint(self) -> str:
        """Return the SHA-256 of what differs from the defaults.

        Two run files that mean the same have the same fingerprint. It leaves out [network], which
        only the simulator reads, [tracking], and the keys of [guard] that refuse messages before
        the journal: all but `sums`, `agreement`, `rule` and what they read. Those may change during
        a run.
        """
        return names.name("run", self.stated())

    def stated(self) -> dict[str, Any]:
        """Return all that differs from the defaults, and the SHA-256 of the run's own code."""
        return self._stated(names.differences(self))

    def agreed(self) -> dict[str, Any]:
        """Return what every edge must agree on: `stated` without what only an aggregator reads."""
        return names.without(self.stated(), THE_AGGREGATORS)

    def _stated(self, different: dict[str, Any]) -> dict[str, Any]:
        """Return `stated`, by what is `different` from the defaults."""
        unread = () if self.guard.sums else ("guard.false_alarm", "guard.rows")
        of_the_run = names.without(different, (*_NOT_THE_RUNS, *unread))
        of_the_run["data"] = self.data.stated(of_the_run["data"])
        parts = self.model.parts(self._folder)
        model_code = {} if parts is None else parts.digests()
        if code := model_code | self.data.code(self._folder):
            of_the_run["code"] = code
        return of_the_run

    # -- built for its consumers -------------------------------------------------------------------

    def build_model(self) -> Model:
        """Return the model of this run. Raises ConfigError."""
        return self.define().build_model()

    def define(self) -> Definition[Any]:
        """Return the run as everything else uses it; called once, when a process starts."""
        a = self.algorithm
        p = self.privacy
        source = self.source
        workers = self.edges.count
        differences = names.without(names.differences(self), ["tracking"])
        plans = self.plans()
        of_run = self._plans_of_run().default
        traits = a.traits(workers)
        stated = self._stated(differences)
        if plans.default.clip_is_bounded:
            z = p.noise_multiplier
        else:
            z = None
        promise = self.data.promised(a.promise(plans, p.constant_clip), source)
        judging = Judging.of(self, source) if self.evaluation.at_edges else None
        if judging is not None:  # of other units, so that the larger budget bounds ε
            promise = replace(promise, budget=judging.larger(plans.budget))
        if self.model.control_flow == "trusted":
            promise = promise.timed()
        if self.data.trusted_fronts:
            promise = promise.with_code()
        return Definition(
            **{name: getattr(self, name) for name in RunFile.model_fields},  # its sections
            folder=self._folder,
            differences=differences,
            source=source,
            worker_names=worker_names(plans.workers if a.worker == "edge" else workers),
            traits=traits,
            plans=plans,
            terms=Terms(of_run.declared, of_run.sampling_rate, z),
            promise=promise,
            enforces_share=traits.in_turn and self.edges.share != "any",
            fingerprint=names.name("run", stated),
            agreed=names.without(stated, THE_AGGREGATORS),
            judging=judging,
        )


def parse(
    text: str,
    origin: str,
    *,
    edges: int | None = None,
    seed: int | None = None,
    folder: Path = Path(),
    federation: bool = False,
    own_code: bool = True,
) -> RunFile:
    """Check the TOML `text`. `edges` and `seed` replace edges.count and run.seed where given.

    CSGD and SGD are centralised: they keep their one edge for every `edges`. folder: what its paths
    are relative to. federation: whether it is a federation's, which leaves out `data.train`.
    own_code: whether an own algorithm of `folder` may be loaded. No other code is loaded. Raises
    ConfigError with one line that names `origin`, the field and the value, and ConfigFaults if
    there are several. Raises DataError if rows are to be counted and cannot be read.
    """
    content = _content(text, origin)
    if _centralised(content):
        edges = None
    for section, key, value in (("edges", "count", edges), ("run", "seed", seed)):
        if value is not None and isinstance(content.setdefault(section, {}), dict):
            content[section][key] = value
    complaints = _fill_rows_of_members(content, origin, federation)
    if federation and "tracking" in content:
        complaints.append(_NO_TRACKING)
    try:
        counted = _count(content, folder)
        context = {"folder": folder, "counted": counted, "written": True, "own_code": own_code}
        run = RunFile.model_validate(content, context=context)
    except ValidationError as error:
        complaints += faults(error, RunFile)
    except ConfigError as error:
        complaints.append(str(error))
    if len(complaints) > 1:
        raise ConfigFaults(origin, complaints)
    if complaints:
        raise ConfigError(f"{origin}: {complaints[0]}")
    return run


def as_tree(run: RunFile) -> dict[str, dict[str, Any]]:
    """Return what `run` states differently from the defaults, as `read` takes it.

    Of a federation's run: without what each member has for itself, the test set, which stays at the
    host, and what only the simulator reads.
    """
    tree = names.without(names.differences(run), ["network", "tracking"])
    if is_own_data(tree["data"]):
        tree["data"] = without_members_own(tree["data"])
    return tree


def read(
    tree: Mapping[str, Any], origin: str, folder: Path, *, site: Site | None, own_code: bool
) -> RunFile:
    """Check a federation's run file that `as_tree` has written.

    folder: where its files are. site: the member's own part, None at the host. own_code: whether an
    own algorithm of `folder` may be loaded. Raises ConfigError, in one line that names `origin`.
    """
    content = {name: dict(keys) for name, keys in tree.items()}
    if "tracking" in content:  # else a stranger would choose where a host writes
        raise ConfigError(f"{origin}: {_NO_TRACKING}")
    try:
        if is_own_data(content.get("data")):
            content["data"] = of_federation(with_columns(content["data"]))
        context = {"folder": folder, "site": site, "own_code": own_code}
        return RunFile.model_validate(content, context=context)
    except ValidationError as error:
        raise ConfigError(f"{origin}: {one_line(error, RunFile)}") from error
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from error


def _fill_rows_of_members(content: dict[str, Any], origin: str, federation: bool) -> list[str]:
    """Let members' rows stand for `data.train`, which a federation's run file leaves out.

    Returns complaints about what it states of them. Raises ConfigError where another run file
    leaves them out.
    """
    data = content.get("data")
    if not is_own_data(data):
        return []
    if not federation:
        if "train" in data:
            return []
        raise ConfigError(
            f"{origin}: data.train: missing; this run file is for a federation: tacit submit"
        )
    content["data"] = of_federation(without_keys_of_members(data))
    return members_own_in(data)


def _content(text: str, origin: str) -> dict[str, Any]:
    refuse_long_keys(text, origin)
    try:
        content = tomllib.loads(text)
        # What cannot be shown (0x and 5,000 digits) could not be complained about.
        repr(content)
    # ValueError comes also of an integer with 5,000 digits, RecursionError of 5,000 brackets.
    except (ValueError, RecursionError) as error:
        help_ = what_to_write(text, error)
        raise ConfigError(f"{origin}: not TOML: {error}{help_}") from error
    return content


def _count(content: dict[str, Any], folder: Path) -> tuple[str, ...]:
    """Add to `content` what [data] leaves out and can be counted; return notes for the user."""
    data = content.get("data")
    if not isinstance(data, dict):
        return ()
    edges = content.get("edges", {})
    if isinstance(edges, dict):
        count = edges.get("count")
    else:
        count = None
    if isinstance(count, int) and count > 0:
        workers = count
    else:
        workers = Edges().count
    try:
        content["data"], notes = with_counts(data, folder, workers)
    except ValidationError:
        return ()  # the whole file is refused for it in a moment, with the section's name
    return notes


def load(
    path: Path, *, edges: int | None = None, seed: int | None = None, federation: bool = False
) -> RunFile:
    """Read and check a run file; `federation` as `parse` has it.

    Raises ConfigError (missing, unreadable, or wrong), and DataError as `parse`.
    """
    try:
        text = regular_file.text(path)
    except IsADirectoryError as error:
        inside = path / "run.toml"
        if inside.is_file():
            meant = f"; did you mean {inside}?"
        else:
            meant = ""
        raise ConfigError(f"run file {path}: is a folder{meant}") from error
    except OSError as error:
        raise ConfigError(f"run file {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"run file {path}: is not UTF-8 text; save it as UTF-8") from error
    return parse(text, str(path), edges=edges, seed=seed, folder=path.parent, federation=federation)


def _centralised(content: dict[str, Any]) -> bool:
    algorithm = content.get("algorithm")
    name = algorithm.get("name") if isinstance(algorithm, dict) else None
    return (
        isinstance(name, str) and name in BUILT_IN and name in built_in(name).settings.centralised
    )
