"""`tacit tune`: clip, rate, batch and updates, tried in the simulator on public or made-up rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import tomlkit
import torch
from pydantic import ValidationError

from tacit.algorithms import AlgorithmSettings
from tacit.config import RunFile, parse
from tacit.config.complaints import one_line
from tacit.config.fingerprint import differences
from tacit.config.sections import MOST_PUSHES
from tacit.datasets.stand_in import StandIn
from tacit.errors import ConfigError, TacitError
from tacit_services.project.public_rows import dealt
from tacit_services.testbed.simulated_run import Simulation

_SMALLER_IS_BETTER = ("rmse", "mae", "perplexity", "log_loss", "deviance", "nll")
# Bounds of what is searched for every algorithm, along a logarithmic scale.
_CLIP = (0.03, 10.0)
_SHARES = (0.005, 0.3)  # bounds of the batch, as a part of an edge's rows
PUSHES = "privacy.pushes"
_PUSHES = 4  # the pushes of an edge are searched from a fourth to this many times the run file's

TunedValues = dict[str, float]  # "privacy.clip": 0.5


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings that were tried, and what came of them: `metric`, or why they cannot be run."""

    values: TunedValues
    metric: float | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The best settings, the metric's name, and all trials, best first."""

    metric: str
    best: Trial
    trials: list[Trial]


def tune(
    run: RunFile,
    rows: StandIn,
    *,
    trials: int,
    seed: int,
    report: Callable[[int, Trial], None] = lambda number, trial: None,
) -> TuningResult:
    """Search settings of `run` on rows that are nobody's secret: `public_rows`, `rows_of_answers`.

    report: is called after every trial. Raises ConfigError.
    """
    search = _Search(run, rows, seed)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="minimize" if search.metric in _SMALLER_IS_BETTER else "maximize",
        sampler=optuna.samplers.TPESampler(seed=seed),
    )
    study.enqueue_trial(search.present())  # what the run file says now is the first
    tried: list[Trial] = []
    for number in range(trials):
        suggestion = study.ask(search.space())
        trial = search.tried(suggestion.params)
        failed = trial.metric is None
        study.tell(suggestion, trial.metric, state=optuna.trial.TrialState.FAIL if failed else None)
        tried.append(trial)
        report(number + 1, trial)
    measured = [trial for trial in tried if trial.metric is not None]
    if not measured:
        raise ConfigError(f"tacit tune: no trial could be run: {tried[-1].why}")
    if search.metric in _SMALLER_IS_BETTER:
        sign = 1
    else:
        sign = -1
    ordered = sorted(measured, key=lambda trial: sign * (trial.metric or 0.0))
    return TuningResult(search.metric, ordered[0], ordered)


class _Search:
    """The search: what is varied, and what each trial reached."""

    def __init__(self, run: RunFile, rows: StandIn, seed: int) -> None:
        self._run = run
        self._seed = seed
        self._test = rows.test
        self._content = differences(run)
        definition = run.define()
        self._metrics = definition.metrics()
        self._rows = definition.plans.rows
        self._passes = definition.traits.passes
        self._parts = dealt(definition, rows, seed).parts
        self.metric = self._first_metric()

    def space(self) -> dict[str, optuna.distributions.BaseDistribution]:
        """Return the bounds of each key; the run file's own value is within them."""
        present = self.present()
        space: dict[str, optuna.distributions.BaseDistribution] = {}
        for key, (low, high) in self._bounds().items():
            value = present.get(key, low)
            least, most = min(low, value), max(high, value)
            if isinstance(low, int):
                space[key] = optuna.distributions.IntDistribution(int(least), int(most), log=True)
            else:
                space[key] = optuna.distributions.FloatDistribution(least, most, log=True)
        return space

    def present(self) -> TunedValues:
        """Return the run file's own values of what is varied."""
        sections = {"privacy": self._run.privacy, "algorithm": self._run.algorithm}
        present: TunedValues = {}
        for key, (low, _) in self._bounds().items():
            section, _, name = key.partition(".")
            value = getattr(sections[section], name)
            if value is not None and value > 0:  # the scale is logarithmic
                present[key] = round(value) if isinstance(low, int) else value
        return present

    def _bounds(self) -> dict[str, tuple[float, float]]:
        """Return the usual bounds of each key that is varied; of whole numbers where they are."""
        privacy = self._run.privacy
        low, high = (max(2, round(share * self._rows)) for share in _SHARES)
        bounds: dict[str, tuple[float, float]] = {"privacy.clip": self._clip()}
        if not self._passes:  # else the batches of a pass make it
            bounds["privacy.batch"] = (low, max(low, high))
        for key, usual in self._run.algorithm.searched.items():
            # None: the algorithm has a rate of its own, which stays its own.
            if getattr(self._run.algorithm, key, None) is not None:
                bounds[f"algorithm.{key}"] = (float(usual[0]), float(usual[1]))
        if privacy.private and privacy.noise_multiplier is None:
            fewest = max(1, privacy.pushes // _PUSHES)
            bounds[PUSHES] = (fewest, min(_PUSHES * privacy.pushes, MOST_PUSHES))
        return bounds

    def _clip(self) -> tuple[float, float]:
        privacy, (low, high) = self._run.privacy, _CLIP
        return max(low, privacy.clip_min), min(high, privacy.clip_max)

    def tried(self, values: TunedValues) -> Trial:
        """Simulate one run with these values."""
        rounded = {key: _rounded(value) for key, value in values.items()}
        if PUSHES in rounded:  # the budget pays for fewer pushes, or for more: so long is the run
            share = rounded[PUSHES] / self._run.privacy.pushes
            rounded["run.updates"] = max(1, round(share * self._run.run.updates))
        try:
            simulation = Simulation(self._with(rounded).define(), None, self._parts)
        except ValidationError as error:
            return Trial(rounded, None, one_line(error, RunFile))
        except TacitError as error:
            return Trial(rounded, None, str(error))
        torch.set_num_threads(1)
        metrics = simulation.measured(self._metrics, self._test)
        if metrics is None:
            return Trial(rounded, None, simulation.role.halt_reason)
        value = metrics[self.metric]
        return Trial(rounded, value if np.isfinite(value) else None, "the metric is no number")

    def _with(self, values: TunedValues) -> RunFile:
        content = copy.deepcopy(self._content)
        for name, value in values.items():
            section, _, key = name.partition(".")
            content.setdefault(section, {})[key] = value
        content["algorithm"].pop("edge", None)  # by the code, of the values at hand
        return RunFile.model_validate(
            content, context={"folder": self._run.folder, "own_code": True}
        )

    def _first_metric(self) -> str:
        """Return the AUC where there is one, as it moves where others do not; else the first."""
        model = self._run.build_model()
        _, metrics = self._metrics.measure(model, model.init(self._seed), self._test)
        if "auc" in metrics:
            return "auc"
        return next(iter(metrics))


def _rounded(value: float) -> float:
    """Round to two significant digits; whole numbers stay as they are."""
    if isinstance(value, int):
        return value
    return float(f"{value:.2g}")


def written(text: str, values: TunedValues, folder: Path) -> str:
    """Return the run file `text` with these values, its comments as they were.

    What an own algorithm's edges compute follows from its settings, so `algorithm.edge` is written
    anew where it stands. folder: of its code.
    """
    document = tomlkit.parse(text)
    for name, value in values.items():
        section, _, key = name.partition(".")
        table: Any = document.setdefault(section, tomlkit.table())
        table[key] = value
    algorithm: Any = document["algorithm"]
    if algorithm.pop("edge", None) is not None:
        run = parse(tomlkit.dumps(document), "tacit tune", folder=folder)
        assert isinstance(run.algorithm, AlgorithmSettings)
        algorithm["edge"] = tomlkit.value(run.algorithm.task().toml())
    return tomlkit.dumps(document)


def lines(values: TunedValues) -> Iterator[str]:
    """Yield the values as keys of a run file."""
    for section in sorted({name.partition(".")[0] for name in values}):
        yield f"[{section}]"
        for name, value in values.items():
            if name.startswith(f"{section}."):
                if isinstance(value, int):
                    shown = f"{value}"
                else:
                    shown = f"{value:g}"
                yield f"{name.partition('.')[2]} = {shown}"
