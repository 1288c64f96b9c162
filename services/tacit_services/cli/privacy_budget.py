"""`tacit plan privacy`: what a privacy budget buys, worked out before any data is touched."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit import rounding
from tacit.errors import ConfigError, PrivacyError
from tacit_services.extras import need
from tacit_services.transport.json_numbers import finite, finite_or_none

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.table import Table


MECHANISMS = ("gaussian", "discrete_gaussian", "knorm")
COLOURS = ("#E69F00", "#009E73", "#0072B2", "#CC79A7")  # Okabe-Ito: safe for colour-blind readers
FACTORS = (0.7, 1.0, 1.4, 2.0)  # the curves of a plot: these times the planned noise multiplier
POINTS = 25  # of each curve

app = typer.Typer(
    name="plan", help="Work out a plan before any data is touched.", no_args_is_help=True
)


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """A plan: `pushes` releases at (q, z) with `mechanism`, and what they cost."""

    mechanism: str
    epsilon_pld: float
    epsilon_rdp: float
    delta: float
    delta_set_aside: float
    noise_multiplier: float
    sampling_rate: float
    pushes: int
    budget: float | None
    records: int | None
    batch: float | None
    padded_batch: int | None


@app.command(
    epilog="Example: tacit plan privacy --epsilon 2 --pushes 3000 --batch 256 --records 12000"
)
def privacy(
    epsilon: Annotated[
        float | None, typer.Option(help="ε that all pushes together may cost")
    ] = None,
    delta: Annotated[float, typer.Option(help="δ; at most 1 over the records of an edge")] = 1e-5,
    pushes: Annotated[
        int | None, typer.Option(help="releases of one edge in its data's life")
    ] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="z: noise standard deviation over the clip")
    ] = None,
    sampling_rate: Annotated[
        float | None, typer.Option(help="q, instead of --batch over --records")
    ] = None,
    batch: Annotated[float | None, typer.Option(help="b: expected batch size")] = None,
    records: Annotated[int | None, typer.Option(help="rows of one edge (a public number)")] = None,
    mechanism: Annotated[str, typer.Option(help=" | ".join(MECHANISMS))] = "discrete_gaussian",
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="draw ε over pushes")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Give two of --epsilon, --pushes and --noise-multiplier; the third is worked out."""
    _check(
        epsilon=(epsilon, 0, math.inf),
        delta=(delta, 0, 1),
        pushes=(pushes, 0, 2**30 + 1),
        noise_multiplier=(noise_multiplier, 0, 1e6),
        sampling_rate=(sampling_rate, 0, 1 + 1e-12),
        batch=(batch, 0, math.inf),
        records=(records, 0, 2**40),
    )
    if mechanism not in MECHANISMS:
        raise ConfigError(f"--mechanism {mechanism!r}: expected one of {', '.join(MECHANISMS)}")
    if plot is not None and plot.suffix != ".png":
        raise ConfigError(f"--plot {plot}: expected FILE.png")
    if plot is not None:
        need("figures")
    rate = _rate(sampling_rate, batch, records)
    answer = solve(epsilon, delta, pushes, noise_multiplier, rate, mechanism, records)
    if plot is not None:
        draw(plot, answer)
    _show(answer, as_json)


def solve(
    epsilon: float | None,
    delta: float,
    pushes: int | None,
    noise_multiplier: float | None,
    sampling_rate: float,
    mechanism: str,
    records: int | None = None,
) -> BudgetPlan:
    """Work out the one of epsilon, pushes and noise_multiplier that is None from the two others.

    Raises ConfigError unless exactly two are given, and where no plan fits.
    """
    from tacit.privacy import accounting
    from tacit.privacy.plan import padded_size

    options = {"--epsilon": epsilon, "--pushes": pushes, "--noise-multiplier": noise_multiplier}
    if sum(value is not None for value in options.values()) != 2:
        listed = (
            ", ".join(f"{name} {value}" for name, value in options.items() if value is not None)
            or "none"
        )
        raise ConfigError(
            f"two of --epsilon, --pushes and --noise-multiplier are needed (given: {listed})"
        )
    if noise_multiplier is None:
        assert epsilon is not None
        assert pushes is not None
        try:
            noise_multiplier = accounting.calibrate(
                epsilon, delta, pushes, sampling_rate, mechanism
            )
        except PrivacyError as error:
            raise ConfigError(f"--{error} at --delta {delta}") from error
    elif pushes is None:
        assert epsilon is not None
        pushes = accounting.certified_pushes(
            epsilon, delta, sampling_rate, noise_multiplier, (), mechanism
        )
        if pushes == 0:
            raise ConfigError(
                f"--epsilon {epsilon}: not one push at --noise-multiplier {noise_multiplier} fits"
            )
    spend = accounting.Spend(sampling_rate, noise_multiplier, pushes or 0, mechanism)
    tight = accounting.epsilon_pld([spend], delta)
    return BudgetPlan(
        mechanism,
        tight,
        accounting.epsilon_rdp([spend], delta),
        delta,
        accounting.delta_set_aside([spend], tight),
        noise_multiplier,
        sampling_rate,
        spend.count,
        epsilon,
        records,
        None if records is None else sampling_rate * records,
        None if records is None else padded_size(records, sampling_rate),
    )


def _check(**options: tuple[float | None, float, float]) -> None:
    for name, (value, low, high) in options.items():
        if value is not None and not low < value < high:
            option = name.replace("_", "-")
            upper = _upper(name, high)
            raise ConfigError(f"--{option} {value}: expected a number above {low}{upper}")


def _upper(name: str, high: float) -> str:
    """Return the upper end of an option's range, in words."""
    if name == "sampling_rate":
        return " and at most 1"
    if high == math.inf:
        return ""
    if high < 2:
        return f" and below {high:g}"
    return f" and at most {high:g}"


def _rate(sampling_rate: float | None, batch: float | None, records: int | None) -> float:
    if sampling_rate is not None:
        if batch is not None:
            raise ConfigError(
                f"--batch {batch:g}: --sampling-rate {sampling_rate:g} says it already; give one "
                f"of them"
            )
        return min(sampling_rate, 1.0)
    if batch is None or records is None:
        raise ConfigError("--sampling-rate is needed, or --batch and --records")
    if batch > records:
        raise ConfigError(f"--batch {batch:g}: is above --records {records}")
    return batch / records


def _show(answer: BudgetPlan, as_json: bool) -> None:
    from tacit_services.display import text_tables

    if as_json:
        typer.echo(json.dumps(finite(asdict(answer)), indent=2))
        return
    console = text_tables.console()
    console.print(_table(console, answer))
    if note := _note(answer):
        console.print(note)


def _table(to: Console, answer: BudgetPlan) -> Table:
    from tacit_services.display import text_tables

    rows = [
        ("mechanism", answer.mechanism),
        ("ε (PLD)", text_tables.epsilon(finite_or_none(answer.epsilon_pld)) + _of(answer.budget)),
        ("ε (RDP)", text_tables.epsilon(finite_or_none(answer.epsilon_rdp))),
        ("δ", f"{answer.delta:g}" + _aside(answer)),
        ("z", f"{answer.noise_multiplier:.6g} ({_meaning(answer.mechanism)})"),
        ("q", f"{answer.sampling_rate:.6g}" + _of_records(answer)),
        ("pushes", str(answer.pushes)),
        (
            "padded batch",
            "- (give --records)" if answer.padded_batch is None else f"{answer.padded_batch} rows",
        ),
    ]
    return text_tables.pairs(to, rows)


def _meaning(mechanism: str) -> str:
    if mechanism == "knorm":
        return (
            "scale of the noise's norm over the clip: one whole-batch push is (1/z, 0), a "
            "coordinate's std √(d+1)·z·C"
        )
    return "noise standard deviation over the clip"


def _aside(answer: BudgetPlan) -> str:
    paid = f", of which {answer.delta_set_aside:.1e} pays for padding and rounding"
    if math.isfinite(answer.epsilon_pld):
        return paid
    return ""


def _of(budget: float | None) -> str:
    if budget is None:
        return ""
    return f" of {budget:g}"


def _of_records(answer: BudgetPlan) -> str:
    if answer.batch is None:
        return ""
    return f" (b = {answer.batch:.4g} of {answer.records} records)"


def _note(answer: BudgetPlan) -> str:
    if answer.epsilon_pld == math.inf:
        return "note: no guarantee: so little noise, or so small a δ, that nothing can be claimed"
    if answer.records is not None and answer.delta > 1 / answer.records:
        return (
            f"note: δ is above 1/records = {1 / answer.records:.1e}; whoever leaks one whole "
            f"record would satisfy it"
        )
    return ""


def draw(path: Path, answer: BudgetPlan) -> None:
    """Draw ε (PLD) over pushes for noise multipliers around the plan's, and mark the plan."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    from tacit.privacy.accounting import Spend, epsilon_pld

    last = max(2 * answer.pushes, 10)
    counts = sorted({max(1, round(last * (i / POINTS) ** 2)) for i in range(1, POINTS + 1)})
    figure, axis = plt.subplots(figsize=(7, 4.4), layout="constrained")
    for colour, factor in zip(COLOURS, FACTORS, strict=True):
        z = answer.noise_multiplier * factor
        spent = [
            epsilon_pld([Spend(answer.sampling_rate, z, n, answer.mechanism)], answer.delta)
            for n in counts
        ]
        width = 2.4 if factor == 1 else 1.4
        axis.plot(
            counts,
            spent,
            color=colour,
            linewidth=width,
            label=f"z = {z:.3g} (plan)" if factor == 1 else f"z = {z:.3g}",
        )
    axis.plot([answer.pushes], [answer.epsilon_pld], "o", color="black", zorder=5)
    axis.annotate(
        f"{answer.pushes} pushes: ε = {rounding.epsilon(answer.epsilon_pld)}",
        (answer.pushes, answer.epsilon_pld),
        xytext=(6, -14),
        textcoords="offset points",
    )
    if answer.budget is not None:
        axis.axhline(
            answer.budget,
            color="black",
            linestyle=":",
            linewidth=1,
            label=f"budget ε = {answer.budget:g}",
        )
    if math.isfinite(answer.epsilon_pld) and answer.epsilon_pld:
        axis.set_ylim(0, 3 * max(answer.epsilon_pld, answer.budget or 0))
    axis.set(xlabel="pushes of one edge", ylabel=f"ε at δ = {answer.delta:g} (PLD)", xlim=(0, last))
    axis.set_title(
        f"{answer.mechanism}, q = {answer.sampling_rate:.4g}, add or remove one record", fontsize=11
    )
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write the picture that --plot asks for, and close it. Raises ConfigError."""
    from matplotlib import pyplot as plt

    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise ConfigError(f"--plot {path}: {error.strerror or error}") from error
    finally:
        plt.close(figure)
