"""`tacit simulate`: a run under a virtual clock in one process, with the files of `tacit run`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tacit import datasets
from tacit.algorithms import registry
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.vafl import vafl_algorithm, vertical_settings
from tacit.algorithms.vafl.party import Party
from tacit.config.algorithm_contract import WorkerKind
from tacit.config.definition import Definition
from tacit.config.preflight import warnings
from tacit.datasets import Benchmark, Dataset, PrivateRows
from tacit.datasets.held_out import UnitSplit, divided
from tacit.datasets.source import EdgePart, published_only
from tacit.datasets.stand_in import PublicParts
from tacit.errors import ConfigError, TacitError
from tacit.models import Model
from tacit.models.metrics import Metrics
from tacit.privacy.accounting.history import UnitSide
from tacit.privacy.ledger.simulated import SimulatedLedger
from tacit.privacy.noise.labels import randomised_response
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release import Releaser
from tacit.simulation.client_server import Simulator
from tacit.simulation.peers import PeerSimulator
from tacit_services.aggregator.reading import Health, RunReading, read, state_of
from tacit_services.aggregator.reporting import results
from tacit_services.aggregator.reporting.early_stop import EarlyStop, watch
from tacit_services.aggregator.reporting.end_reasons import NO_GAIN_OF_LOOKS
from tacit_services.aggregator.reporting.evaluation import Points, public_sample
from tacit_services.aggregator.reporting.other_models import OtherModels
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.display import live, text_tables
from tacit_services.tracking.run_trackers import RunTrackers
from tacit_services.tracking.tracker import TrackedRun

SHOWN_SECONDS = 0.5  # between two drawings of the bar


@lru_cache(maxsize=2)  # a sweep asks for the same again and again
def training_rows(source: Benchmark, root: Path | None) -> Dataset:
    """Return all training rows. Raises DataError."""
    return source.train(root)


@lru_cache(maxsize=1)
def _splits(name: str, root: Path | None) -> tuple[Dataset, Dataset]:
    return datasets.splits(name, root)


def rows_by_edge(definition: Definition[Any], root: Path | None) -> list[EdgePart]:
    """Return the rows of every edge. Raises ConfigError, DataError."""
    source = published_only(definition.source)
    rows = training_rows(source, root)
    if source.dealing.method == "natural":
        groups = rows.groups
    else:
        groups = None
    parts = source.dealing.parts(rows.y if groups is None else groups)
    return [EdgePart(rows.take(index), len(index)) for index in parts[: definition.edges.count]]


def edge(definition: Definition[Any], model: Model, number: int, part: EdgePart) -> EdgeRole:
    """Return edge `number`, with noise from the run's seed; its budget binds as with secret noise.

    It computes a batch in slots, as `batched_edges` needs, and as every machine can: so a simulated
    run has the same bits with kernels and without. The rows are public, and no clock is watched.
    """
    plan = definition.plans.plan(number, part.most)
    rows, held_out, side = _sides(definition, number, part)
    random = _random(definition.run.seed, number)
    releaser = Releaser(plan, SimulatedLedger(), random, side=side)
    releaser.releases_left = plan.pushes_left(())
    arguments = definition, f"edge-{number}", rows, model, releaser
    role = registry.edge(*arguments, rows_alone=False, held_out=held_out)
    if role.judge is not None:
        role.judge.releaser.releases_left = role.judge.releaser.plan.pushes_left(())
    return role


def _sides(
    definition: Definition[Any], number: int, part: EdgePart
) -> tuple[PrivateRows, PrivateRows | None, UnitSide]:
    """Return an edge's rows, those held out of them, and the side that training is charged to.

    The key of a simulated split is public.
    """
    if definition.judging is None:
        return part.rows, None, "both"
    if part.held_out is not None:
        return part.rows, part.held_out, "training"
    assert isinstance(part.rows, Dataset)
    key = f"simulated {definition.run.seed} {number}".encode()
    rows, held_out = divided(part.rows, UnitSplit(key, definition.judging.held_out))
    return rows, held_out, "training"


def _random(seed: int, number: int) -> Random:
    """Return the stream of this seed and edge: a run has at most 10,000 edges."""
    return Random(seed * 10_000 + number)


def edges(
    definition: Definition[Any],
    model: Model,
    root: Path | None,
    public: Sequence[EdgePart] | None = None,
) -> tuple[ServerRole, list[EdgeRole]]:
    """Return a server, or what peers report to, and all workers that have rows."""
    parts = rows_by_edge(definition, root) if public is None else public
    roles = [edge(definition, model, number, part) for number, part in enumerate(parts)]
    return registry.server(definition, model), roles


def parties(
    definition: Definition[Any],
    model: Model,
    root: Path | None,
    public: Sequence[EdgePart] | None = None,
) -> tuple[ServerRole, list[Party]]:
    """Return the roles of a vertical run, with noise (and noisy labels) from the run's seed."""
    vertical = vertical_settings.vertical(definition)
    splits = _splits(definition.source.name, root)
    salt = b"simulated"
    records = vafl_algorithm.labelled_records(splits, salt)
    epsilon = vertical.settings.label_epsilon
    train = splits[0]
    if epsilon is not None:
        drawn = randomised_response(
            train.y, train.classes, epsilon, _random(definition.run.seed, definition.edges.count)
        )
        records = vafl_algorithm.labelled_records(splits, salt, drawn, epsilon)
    roles = [
        vafl_algorithm.party(
            vertical,
            f"edge-{number}",
            number,
            splits,
            salt,
            SimulatedLedger(),
            _random(definition.run.seed, number),
        )
        for number in range(definition.edges.count)
    ]
    return registry.server(definition, model, records), roles


_Simulators = Callable[[Definition[Any], ServerRole, Sequence[Any]], Simulator | PeerSimulator]
_WORLDS: dict[WorkerKind, tuple[Callable[..., tuple[ServerRole, Sequence[Any]]], _Simulators]] = {
    "edge": (edges, Simulator),
    "peer": (edges, PeerSimulator),
    "party": (parties, Simulator),
}


class Simulation:
    """A simulated run, which is read as an aggregator's is."""

    def __init__(
        self,
        definition: Definition[Any],
        root: Path | None,
        public: Sequence[EdgePart] | None = None,
    ) -> None:
        """public: each edge's rows, where they are not those of the run's published data set."""
        if definition.privacy.noise_at == "server":
            raise ConfigError(
                "privacy.noise_at=server: tacit simulate adds noise at the edges only"
            )
        if definition.network.staleness is not None and definition.algorithm.worker == "party":
            raise ConfigError(
                "network.staleness: a vertical run has no models of an age; "
                "give [network] delays instead"
            )
        self.definition = definition
        self.model = definition.build_model()
        roles, simulator = _WORLDS[definition.algorithm.worker]
        self.role, workers = roles(definition, self.model, root, public)
        self.simulator = simulator(definition, self.role, workers)
        self.counts: Counter[str] = Counter()

    def reading(self) -> RunReading:
        """Return the run now; of [guard] nothing but the accusations by sums is simulated."""
        return read(
            self.role,
            self.counts,
            dict.fromkeys(self.simulator.edges, "online"),
            run_id=self.definition.run.name,
            fingerprint=self.definition.fingerprint,
            quarantined=self.role.accused,
        )

    def health(self) -> Health:
        """Return a good health: a simulation has no store and no broker to lose."""
        return Health(over=self.role.halted)

    def measured(self, metrics: Metrics, test: Dataset) -> dict[str, float] | None:
        """Run to the end; return `metrics` of the model on `test`, None if it was not trained."""
        self.simulator.run(lambda role: None)
        due = self.role.evaluation_input(test)
        if due is None or self.role.version == 0:
            return None
        _, params, data = due
        return metrics.measure(self.model, params, data)[1]

    def end_early(self, early_stop: EarlyStop | None, run_status: RunStatus) -> None:
        """End the run where its evaluations, or its looks, show no gain."""
        if not isinstance(self.simulator, Simulator):
            return
        if early_stop is not None and early_stop.reason:
            self.simulator.halt(early_stop.reason)
        elif self.definition.run.stop != "never" and run_status.looks_show_no_gain():
            self.simulator.halt(NO_GAIN_OF_LOOKS)

    @property
    def state(self) -> str:
        """waiting, training, finished (T reached) or halted."""
        return state_of(self.role)

    def clock(self) -> dict[str, float]:
        """Return virtual seconds, and the gradients (local steps) that the server has heard of."""
        gradients = sum(record.charged.count for record in self.role.edges.values())
        return {"virtual_time_s": round(self.simulator.now, 6), "gradients": gradients}


def simulate(
    definition: Definition[Any],
    root: Path | None,
    out: Path,
    report: Callable[[RunStatus], None],
    public: PublicParts | None = None,
) -> Simulation:
    """Simulate a run and write its results to `out`.

    `report` is called after every message. public: rows in the place of the run's own; without them
    its data must be a published set. Raises TacitError.
    """
    torch.set_num_threads(1)  # the same bits on any machine, and faster on matrices this small
    tracked_run = TrackedRun.of(definition, definition.run.name, simulated=True)
    with closing(
        RunTrackers.of(definition.tracking, definition.folder, tracked_run, out)
    ) as trackers:
        simulation = _simulated(definition, root, out, report, public, trackers)
        trackers.end()
    return simulation


def _simulated(
    definition: Definition[Any],
    root: Path | None,
    out: Path,
    report: Callable[[RunStatus], None],
    public: PublicParts | None,
    trackers: RunTrackers,
) -> Simulation:
    simulation = Simulation(definition, root, None if public is None else public.parts)
    test = published_only(definition.source).test(root) if public is None else public.test
    run_status = RunStatus(
        definition, simulation, out / "metrics.jsonl", virtual=simulation.clock,
        by_test_set=definition.run.stop != "never", tell=trackers.point,
    )  # fmt: skip
    run_status.resumed()
    trackers.begin()
    sample = public_sample(definition, test)
    early_stop = watch(
        definition, simulation.model, sample, run_status.points, out, definition.run.name
    )
    points = Points(definition, simulation.model, test, sample, run_status.point, early_stop)

    def observe(role: ServerRole) -> None:
        run_status.tick(role.version)
        # None: the parties of a vertical run have not answered yet.
        if role.halted:
            due = None
        else:
            due = role.evaluation_input(points.sample)
        if due is not None and points.due(due[0]):
            points.measure(*due)
            simulation.end_early(early_stop, run_status)
        report(run_status)

    simulation.simulator.run(observe)
    simulation.counts["rejected:screened"] = simulation.simulator.refused
    run_status.end()
    if (due := simulation.role.evaluation_input(points.test)) is not None:
        points.measure(*due)
    others = OtherModels(simulation.role.model_average, early_stop, simulation.role.looks)
    results.write(out, definition, run_status, simulation.model, test, others)
    return simulation


class SimulationProgress:
    """A progress bar with the time that is left."""

    def __init__(self, console: Console, updates: int) -> None:
        self._progress = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TimeRemainingColumn(),
            TextColumn("{task.fields[facts]}"),
            console=console,
            disable=not console.is_terminal,
            auto_refresh=False,
        )
        self._task = self._progress.add_task("simulating", total=updates, facts="")
        self._notebook = live.notebook_bar(console, updates)
        self._shown_at = 0.0

    def __enter__(self) -> SimulationProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        if self._notebook is not None:
            self._notebook.close()

    def show(self, run_status: RunStatus) -> None:
        """Draw the bar, unless it was drawn within the last SHOWN_SECONDS."""
        if time.monotonic() - self._shown_at < SHOWN_SECONDS:
            return
        self._shown_at = time.monotonic()
        if run_status.series:
            last = run_status.series[-1]
        else:
            last = {}
        if last:
            facts = [
                f"{last['virtual_time_s']:.4g} virtual s",
                f"accuracy {100 * last['accuracy']:.1f} %",
            ]
        else:
            facts = []
        version = run_status.reading().version
        self._progress.update(self._task, completed=version, facts=" · ".join(facts))
        self._progress.refresh()
        if self._notebook is not None:
            self._notebook.show(version, " · ".join(facts))


def make_output_folder(out: Path) -> None:
    """Make the output directory, without the results of an earlier simulation.

    Raises ConfigError.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in results.FILES:
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror or error}") from error


def run(
    definition: Definition[Any],
    *,
    out: Path,
    data: Path | None,
    as_json: bool,
    public: PublicParts | None = None,
    quiet: bool = False,
) -> None:
    """Simulate with a progress bar, write the results to `out`, and show them.

    public: as of `simulate`. quiet: shows nothing. Raises TacitError, also where no update was
    applied: its results are written all the same.
    """
    import json

    console = text_tables.console(stderr=as_json)
    console.quiet = quiet
    started = time.monotonic()
    make_output_folder(out)
    for note in warnings(definition, definition.build_model().size):
        console.print(f"note: {note}")
    try:
        with SimulationProgress(console, definition.run.updates) as bar:
            simulation = simulate(definition, data, out, bar.show, public)
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror or error}") from error
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    applied = summary["applied"]
    if simulation.state != "finished" and applied:
        console.print(
            f"the run ended early ({summary['reason']}): {applied} of {definition.run.updates}"
        )
    if as_json:
        Console().print_json(data=summary, ensure_ascii=True)
    else:
        console.print(live.closing(summary, out, time.monotonic() - started))
        console.print(
            f"virtual time {summary['virtual_time_s']:.6g} s; noise from seed "
            f"{definition.run.seed}: ε is simulated"
        )
    if not applied:
        raise TacitError(
            f"no update was applied, so the model is the one that the run began with: "
            f"{summary['reason']}"
        )
