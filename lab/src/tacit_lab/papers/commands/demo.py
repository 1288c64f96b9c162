"""`tacit demo`: what privacy is for, shown on public data."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from tacit_services.transport.json_numbers import finite_or_none

from tacit.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tacit_lab.papers.demo.inversion_demo import AttackOutcome, Findings

app = typer.Typer(
    name="demo", help="Show what privacy is for, on public data.", no_args_is_help=True
)


@app.callback()
def group() -> None:
    """Show what privacy is for, on public data."""
    # Without this callback typer would drop the group's name, as it has one command only.


@app.command(epilog="Example: tacit demo inversion --victims 3")
def inversion(
    out: Annotated[Path, typer.Option(help="folder of inversion.png and inversion.json")] = Path(
        "out/inversion"
    ),
    pushes: Annotated[
        list[int] | None,
        typer.Option(help="pushes that the attacker averages; repeatable [default: 1 and 100]"),
    ] = None,
    victims: Annotated[
        int, typer.Option(min=1, max=20, help="edges under attack, one image each")
    ] = 6,
    seed: Annotated[
        int, typer.Option(min=0, help="chooses the victims (the noise is never seeded)")
    ] = 0,
    data: Annotated[
        Path | None,
        typer.Option(envvar="TACIT_DATA", help="folder with MNIST [default: the bundled digits]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Rebuild images from pushes: without noise, with the paper's, with tacit's."""
    counts = tuple(sorted(set(pushes or (1, 100))))
    for count in counts:
        if not 1 <= count <= 10_000:
            raise ConfigError(f"--pushes {count}: expected 1 to 10000")
    _prepare(out)

    import torch
    from rich.console import Console

    from tacit_lab.papers.demo import inversion_demo as demo_inversion
    from tacit_lab.papers.demo import picture

    torch.set_num_threads(1)  # 10×784 matrices: more threads only wait for one another

    table = demo_inversion.load(data)
    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    findings = demo_inversion.run(table, counts, victims, seed, progress.print)
    picture.draw(out / "inversion.png", findings)
    content = _content(findings)
    (out / "inversion.json").write_text(
        json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    _show(findings, content, out, as_json)


def _prepare(out: Path) -> None:
    """Make the folder, and find out at once whether the results can be written there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
        for name in ("inversion.png", "inversion.json"):
            if (out / name).exists():
                (out / name).open("ab").close()
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror or error}") from error


def _show(findings: Findings, content: dict[str, Any], out: Path, as_json: bool) -> None:
    from tacit_services.display import text_tables

    if as_json:
        typer.echo(json.dumps(content, indent=2))
        return
    console = text_tables.console()
    console.print(_table(console, findings))
    console.print(
        "claimed ε: the paper's is per push, tacit's for all pushes together; true ε: what can "
        "be proven"
    )
    console.print(f"picture: {out / 'inversion.png'}")


def _table(to: Console, findings: Findings) -> Table:
    from rich.table import Table
    from tacit_services.display import text_tables

    table = Table(box=text_tables.outline(to), header_style="bold")
    for name in ("condition", "pushes", "cosine", "PSNR, dB", "label", "claimed ε", "true ε"):
        table.add_column(name, justify="left" if name == "condition" else "right", no_wrap=True)
    for outcome in findings.outcomes:
        table.add_row(
            outcome.condition.name,
            str(outcome.pushes),
            f"{outcome.cosine:.3f}",
            f"{outcome.psnr:.1f}",
            f"{100 * outcome.label_rate:.0f} %",
            _claim(outcome),
            text_tables.epsilon(finite_or_none(outcome.epsilon)),
        )
    return table


def _claim(outcome: AttackOutcome) -> str:
    condition = outcome.condition
    if condition.claimed is None:
        return "-"
    if condition.per_push:
        return f"{condition.claimed:g} a push"
    return f"{condition.claimed:g}"


def _content(findings: Findings) -> dict[str, Any]:
    rows = [
        {
            "condition": outcome.condition.key,
            "name": outcome.condition.name,
            "pushes": outcome.pushes,
            "batch": outcome.condition.plan.batch,
            "noise_multiplier": outcome.condition.plan.noise_multiplier,
            "cosine": round(outcome.cosine, 4),
            "psnr_db": finite_or_none(round(outcome.psnr, 2)),
            "label_rate": round(outcome.label_rate, 4),
            "claimed_epsilon": outcome.condition.claimed,
            "claimed_per_push": outcome.condition.per_push,
            "true_epsilon": finite_or_none(outcome.epsilon),
        }
        for outcome in findings.outcomes
    ]
    return {
        "dataset": findings.dataset,
        "broker": findings.broker,
        "victims": len(findings.originals),
        "outcomes": rows,
    }
