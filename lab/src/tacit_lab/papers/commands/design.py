"""`tacit plan dp-pasgd`: steps K, period τ and noise σ within a privacy and a resource budget.

It solves the design problem of DP-PASGD (Hu et al., arXiv:2003.12705), whose equation numbers it
uses.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from tacit_services.cli.privacy_budget import save

from tacit.errors import ConfigError
from tacit.rounding import beside

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tacit.algorithms.dp_pasgd.design import DesignedRun
    from tacit.algorithms.dp_pasgd.problem import DesignProblem

# Okabe-Ito: safe for colour-blind readers
BLUE = "#0072B2"
ORANGE = "#E69F00"


# The options of `dp_pasgd`.
DesignDelta = Annotated[
    float, typer.Option(help="δ; at most 1 over the records of a device", show_default=False)
]
BatchSizes = Annotated[
    str, typer.Option(help="X_m: one size, or one per device, with commas", show_default=False)
]
Lipschitz = Annotated[
    float, typer.Option(help="G: the clip of one example's gradient", show_default=False)
]
StrongConvexity = Annotated[float, typer.Option(help="λ: the regularization", show_default=False)]
AverageCost = Annotated[
    float, typer.Option(help="cost of one average (tacit plan measure)", show_default=False)
]
StepCost = Annotated[
    float, typer.Option(help="cost of one local step, in the same unit", show_default=False)
]
Resource = Annotated[float, typer.Option(help="C_th: what a device may spend", show_default=False)]
Gap = Annotated[float, typer.Option(help="α: loss at the start over the least")]
Variance = Annotated[
    float | None, typer.Option(help="ξ² of a batch's gradient (if not given: G²/X_m)")
]
PlannerOption = Annotated[
    Literal["corrected", "paper", "poisson"],
    typer.Option(help="paper: its σ is too small; poisson: least noise"),
]
SamplingRate = Annotated[float | None, typer.Option(help="q of a device's batches, for poisson")]
BoundPicture = Annotated[
    Path | None, typer.Option(metavar="FILE.png", help="draw the bound over τ")
]
NewRunFile = Annotated[
    Path | None, typer.Option(metavar="FILE.toml", help="write a run file of the plan")
]
Partition = Annotated[str | None, typer.Option(help="of the run file (if not given: iid)")]


def dp_pasgd(
    epsilon: Annotated[float, typer.Option(help="ε_th of each device's data", show_default=False)],
    delta: DesignDelta,
    devices: Annotated[int, typer.Option(help="M", show_default=False)],
    batch: BatchSizes,
    lipschitz: Lipschitz,
    dim: Annotated[int, typer.Option(help="d: parameters of the model", show_default=False)],
    smoothness: Annotated[float, typer.Option(help="L", show_default=False)],
    strong_convexity: StrongConvexity,
    lr: Annotated[float, typer.Option(help="η of a local step", show_default=False)],
    c1: AverageCost,
    c2: StepCost,
    resource: Resource,
    gap: Gap = 0.6931471805599453,
    variance: Variance = None,
    planner: PlannerOption = "corrected",
    sampling_rate: SamplingRate = None,
    plot: BoundPicture = None,
    run_file: NewRunFile = None,
    dataset: Annotated[str, typer.Option(help="of the run file")] = "adult",
    model: Annotated[str, typer.Option(help="of the run file: logistic | svm")] = "logistic",
    partition: Partition = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Find K, tau and sigma of DP-PASGD that the privacy and resource budgets of a device allow.

    Every number is public: what is estimated on private data is a leak that no ledger counts.
    """
    from tacit.algorithms.dp_pasgd import design
    from tacit.algorithms.dp_pasgd.problem import DesignProblem

    if plot is not None:
        _check_picture(plot)
    try:
        problem = DesignProblem(
            epsilon,
            delta,
            devices,
            _sizes(batch),
            lipschitz,
            dim,
            smoothness,
            strong_convexity,
            lr,
            c1,
            c2,
            resource,
            gap,
            variance,
        )
        plan = design.plan(problem, planner, sampling_rate)
    except ConfigError as error:
        raise ConfigError(_with_flag(str(error))) from error
    if plot is not None:
        draw(plot, problem, plan)
    notes = _notes(problem, plan)
    if run_file is not None:
        text = as_run_file(problem, plan, dataset, model, partition)
        notes += _write(run_file, text, plan, dim)
    _show(problem, plan, notes, as_json)


def _check_picture(file: Path) -> None:
    if file.suffix != ".png":
        raise ConfigError(f"--plot {file}: expected FILE.png")


def _sizes(batch: str) -> tuple[float, ...]:
    try:
        return tuple(float(size) for size in batch.split(","))
    except ValueError:
        raise ConfigError(
            f"batch={batch}: expected a number, or one per device with commas between"
        ) from None


def _with_flag(message: str) -> str:
    """Put an error in the words of the command line: `lr=0.0: why` becomes `--lr 0.0: why`."""
    return re.sub(
        r"^(\w+)=(\S*): ", lambda match: f"--{match[1].replace('_', '-')} {match[2]}: ", message
    )


def _show(problem: DesignProblem, plan: DesignedRun, notes: list[str], as_json: bool) -> None:
    from tacit_services.display import text_tables

    if as_json:
        typer.echo(
            json.dumps(
                {key: value for key, value in asdict(plan).items() if key != "objective"}, indent=2
            )
        )
        return
    console = text_tables.console()
    console.print(_table(console, problem, plan))
    for note in notes:
        console.print(note)


def _table(to: Console, problem: DesignProblem, plan: DesignedRun) -> Table:
    from tacit_services.display import text_tables

    if plan.planner == "poisson":
        by = f"PLD, batches drawn at q = {plan.sampling_rate:.4g}"
    else:
        by = "zCDP, (9)"
    if plan.planner == "paper":
        bound = "(12), which is false"
    else:
        bound = "bound on the last iterate"
    rows = [
        ("planner", plan.planner),
        ("K", f"{plan.K} local steps of each device, all paid for"),
        ("τ", f"{plan.tau} steps between two averages"),
        ("rounds", str(plan.rounds)),
        ("σ", f"{plan.sigma:.6g} on a batch's mean gradient (z = {plan.noise_multiplier:.6g})"),
        ("predicted loss", f"{plan.predicted_loss:.4g} above the least ({bound})"),
        ("", f"{plan.average_loss:.4g} in the mean over all steps (provable bound)"),
        ("resource", f"{plan.resource:.6g} of {problem.resource:g}"),
        ("ε", f"{text_tables.epsilon(plan.epsilon)} of {problem.epsilon:g} ({by})"),
        ("δ", f"{plan.delta:g}"),
    ]
    return text_tables.pairs(to, rows)


def _notes(problem: DesignProblem, plan: DesignedRun) -> list[str]:
    from tacit.algorithms.dp_pasgd.design import relaxed
    from tacit.algorithms.dp_pasgd.formulas import longest_period

    notes = []
    if plan.planner == "paper":
        K, tau = relaxed(problem)
        notes.append(
            "note: the paper's root of (23): these K steps cost ε = "
            f"{beside(plan.epsilon, problem.epsilon)}, not {problem.epsilon:g}. "
            f"Its relaxed optimum (24) is K = {K:.1f}, τ = {tau:.1f}"
        )
    elif plan.predicted_loss >= problem.gap:
        notes.append(
            f"note: the bound is not below α = {problem.gap:.3g}: by it, training is not worth "
            f"its noise"
        )
    if plan.tau + 1 > longest_period(problem):
        notes.append(
            f"note: τ is the longest that (21e) allows at η = {problem.lr:g}; a smaller η allows "
            f"more"
        )
    return notes


def as_run_file(
    problem: DesignProblem, plan: DesignedRun, dataset: str, model: str, partition: str | None
) -> str:
    """Return the plan as a run file (TOML).

    Raises ConfigError for batches that differ between devices.
    """
    if len(set(problem.batch)) > 1:
        raise ConfigError(
            "--run-file: a run file has one privacy.batch for all devices; give one --batch"
        )
    G = problem.lipschitz
    return f"""\
# By `tacit plan dp-pasgd`, planner {plan.planner}:
# K = {plan.K}, tau = {plan.tau}, sigma = {plan.sigma:.6g}.
# Predicted: a loss {plan.predicted_loss:.4g} above the least;
# a cost of {plan.resource:.6g} of {problem.resource:g}.

[run]
name = "dp-pasgd-{plan.planner}"
updates = {plan.rounds} # rounds

[data]
dataset = {json.dumps(dataset)}
{"" if partition is None else f"partition = {json.dumps(partition)}"}
[model]
name = {json.dumps(model)}
regularization = {problem.strong_convexity!r} # lambda

[algorithm]
name = "dp-pasgd"
learning_rate = {problem.lr!r}
tau = {plan.tau}

[privacy]
epsilon = {float(problem.epsilon)!r}
delta = {problem.delta!r}
pushes = {plan.K} # every local step is paid for
batch = {float(problem.batch[0])!r}
noise_multiplier = {plan.noise_multiplier!r} # sigma * batch / clip
clip = {float(G)!r}
clip_min = {float(G)!r}
clip_max = {float(G)!r}

[edges]
count = {problem.devices}
"""


def _write(path: Path, text: str, plan: DesignedRun, dim: int) -> list[str]:
    """Write the run file; returns notes on it.

    It is checked first: every device's ledger must let it take its K steps. Raises ConfigError.
    """
    from tacit import config

    run = config.parse(text, f"--run-file {path}")
    remaining = run.plan(0).pushes_left(())
    if remaining is not None and remaining < plan.K and plan.planner != "paper":
        raise ConfigError(
            f"--run-file {path}: its devices draw batches at q = {run.sampling_rate():.4g}, "
            f"where only {remaining} of {plan.K} steps are within ε; "
            "give --sampling-rate and --batch of this dataset"
        )
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--run-file {path}: {error.strerror or error}") from error
    size = run.build_model().size
    what = f"{run.model.name} on {run.source.name} has {size} parameters here"
    if size == dim:
        return []
    return [f"note: {what}; the plan is of --dim {dim}, and noise adds up over parameters"]


def draw(path: Path, problem: DesignProblem, plan: DesignedRun) -> None:
    """Draw the least bound over R for every feasible τ, with the plan marked."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 4.4), layout="constrained")
    tau, bound = zip(*plan.objective, strict=True)
    axis.plot(
        tau, bound, color=BLUE, linewidth=2, marker="o" if len(tau) < 60 else "", markersize=3
    )
    axis.plot([plan.tau], [plan.predicted_loss], "o", color=ORANGE, markersize=9, zorder=5)
    label = f"τ = {plan.tau}, K = {plan.K}, σ = {plan.sigma:.3g}"
    axis.annotate(
        label,
        (plan.tau, plan.predicted_loss),
        xytext=(0, -18),
        textcoords="offset points",
        ha="center",
    )
    axis.margins(y=0.15)
    axis.set(
        xlabel="τ: local steps between two averages", ylabel="bound on the loss above the least"
    )
    axis.set_title(
        f"{plan.planner}: ε = {problem.epsilon:g}, δ = {problem.delta:g}, C = {problem.resource:g}",
        fontsize=11,
    )
    axis.grid(alpha=0.3)
    save(figure, path)
