"""`tacit verify`: what a bundle of evidence proves, without a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tacit_services.cli import replay
from tacit_services.cli.options import AsJson
from tacit_services.cli.say import say
from tacit_services.extras import need

_REFUSED = 5


def verify(
    bundle: Annotated[
        Path, typer.Argument(help="bundle of tacit export --evidence: folder or zip")
    ],
    anchor: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="what owners or a federation gave outside the bundle: a certificate, a statement, "
            "or lines of names and sha256:…; may be repeated",
        ),
    ] = None,
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="let code of the bundle run, to fold its journal")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what a bundle proves, what is only stated, and what is missing.

    Exit code 0, or 5 where something in it is refused, with each reason.
    """
    need("edge")
    from tacit_services.evidence import anchors, verification

    believed = anchors.read(anchor or [])
    verdict = verification.verified(bundle, believed, _fold, trust_code=trust_code)
    if as_json:
        typer.echo(json.dumps(verdict.document(), indent=2, ensure_ascii=True))
    else:
        say(verdict.text())
    raise typer.Exit(0 if verdict.ok else _REFUSED)


def _fold(journal: Path, code: Path) -> replay.Replayed:
    return replay.fold(journal, code=code)
