"""`tacit export`: a trained model as one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit_services.cli.reach import Reach, reaching
from tacit_services.cli.run_results import results_of
from tacit_services.cli.say import say
from tacit_services.extras import need


@reaching
def export(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="folder to make")],
    run: Annotated[
        Path,
        typer.Option(help="output directory of a run that has ended; in a federation, its name"),
    ] = Path("out/run"),
    code: Annotated[
        Path | None, typer.Option(help="folder of your own module [default: the run file's]")
    ] = None,
    which: Annotated[
        str,
        typer.Option(
            help="last, averaged (run.average) or best (run.stop, or looks at the edges); "
            "summary.json says how good each is"
        ),
    ] = "last",
    onnx: Annotated[
        bool, typer.Option("--onnx", help="write model.onnx, too, for serving")
    ] = False,
    evidence: Annotated[
        bool, typer.Option("--evidence", help="make a bundle that others can check by tacit verify")
    ] = False,
    journal: Annotated[
        Path | None,
        typer.Option(help="with --evidence: journal file of the run, whose chain goes in"),
    ] = None,
    with_journal: Annotated[
        bool,
        typer.Option("--with-journal", help="the journal itself, too: anybody can fold it again"),
    ] = False,
    *,
    reach: Reach,
) -> None:
    """Write a run's model, with its model card, as a folder to use or hand on."""
    need("edge")
    if onnx:
        need("onnx")
    from tacit import exported

    if evidence:
        from tacit_services.cli import evidence as bundles

        if reach.names_run(run):
            bundles.of_federation(reach.federation, str(run), out, which, with_journal=with_journal)
        else:
            bundles.of_results(run, out, which, code, journal, with_journal=with_journal)
        return
    with results_of(reach, run) as results:
        files = exported.export(results, out, code, which, with_onnx=onnx)
    say(f"{out}/: {', '.join(str(file.relative_to(out)) for file in files)}")
    say(f"read {out}/README.md: whose privacy, which ε, who may rely on what")
    say(f"next: tacit predict {out} {exported.option_of_rows(out)}")
