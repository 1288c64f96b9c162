"""`tacit audit`: attacks mechanisms, and broken ones that must be caught."""

from __future__ import annotations

import json
import math
import os
import tempfile
import warnings
from collections import Counter
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.errors import ConfigError, PrivacyError, ServiceError
from tacit_services.extras import need

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console
    from rich.table import Table

    from tacit.audit.statistics import Finding
    from tacit.audit.subject import Ask
    from tacit.audit.training import Epsilon
    from tacit.audit.whole import Host

_LENGTH = 4  # bytes in front of each message from a forked child


def audit(
    mechanism: Annotated[
        list[str] | None,
        typer.Option(help="only this one, and its mutants; may be repeated [default: all]"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="predictable noise: repeats a run, proves nothing")
    ] = None,
    thorough: Annotated[
        bool, typer.Option(help="time pushes over a real broker, not by processor time")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Attack every mechanism through the wire, and broken ones that must be caught (two minutes).

    Exit code 5 when an honest mechanism leaks more than it claims, or a mutant is not caught.
    """
    if thorough:
        need("run")
    import torch

    from tacit.audit.whole import AUDITED
    from tacit.audit.whole import audit as attack
    from tacit_services.display import text_tables
    from tacit_services.display.progress import LongWork

    unknown = sorted(set(mechanism or ()) - set(AUDITED))
    if unknown:
        raise ConfigError(f"--mechanism {unknown[0]!r}: expected one of {', '.join(AUDITED)}")
    torch.set_num_threads(1)  # vectors of a few hundred numbers
    console = text_tables.console()
    findings = []
    with LongWork("attacking") as work:
        for finding in attack(host(thorough=thorough), mechanism or AUDITED, seed=seed):
            findings.append(finding)
            line = f"{finding.test}: {finding.target} {finding.verdict}"
            work.at(len(findings), f"{len(findings)} findings; {line}")
    if as_json:
        typer.echo(json.dumps([_plain(finding) for finding in findings], indent=2))
    else:
        console.print(table(console, findings))
        passed = Counter(finding.verdict for finding in findings)
        console.print(
            f"{passed['passes']} pass, {passed['caught']} mutants caught; a pass is no proof"
        )
    bad = Counter(finding.verdict for finding in findings if not finding.good)
    if bad:
        raise PrivacyError(
            f"audit of {len(findings)} findings: {bad['LEAKS']} leak, {bad['MISSED']} mutants "
            f"missed"
        )


def table(console: Console, findings: Iterable[Finding]) -> Table:
    """Return the findings as a table, one row for each."""
    from rich.table import Table

    from tacit_services.display import text_tables

    rendered = Table(box=text_tables.outline(console), header_style="bold")
    for name in ("test", "target", "quantity", "claim", "measured", "verdict"):
        rendered.add_column(
            name, justify="right" if name in ("claim", "measured") else "left", no_wrap=True
        )
    for finding in findings:
        if math.isnan(finding.measured):
            measured = "-"
        else:
            measured = f"{finding.measured:.3g}"
        if finding.good:
            style = ""
        else:
            style = "bold red"
        row = (
            finding.test,
            finding.target,
            finding.quantity,
            f"{finding.claim:.3g}",
            measured,
            finding.verdict,
        )
        rendered.add_row(*row, style=style)
    return rendered


def _plain(finding: Finding) -> dict[str, Any]:
    if math.isnan(finding.measured):
        measured = None
    else:
        measured = finding.measured
    return {
        **asdict(finding),
        "measured": measured,
        "verdict": finding.verdict,
        "good": finding.good,
    }


# -- what takes a process --


def host(*, thorough: bool = False) -> Host:
    """Return what the audit needs of a process: an outbox, a fork, a disk, Opacus if installed."""
    from tacit.audit.whole import Host

    fork = forked if hasattr(os, "fork") else None
    basic = Host(resent, fork, second_accountant(), tempfile.TemporaryDirectory)
    if not thorough:
        return basic
    from tacit_services.cli.audit_over_mqtt import wire_seconds
    from tacit_services.cli.audit_rows_drawn import seconds_and_rows

    return replace(basic, seconds=wire_seconds, drawn=seconds_and_rows)


def resent(ask: Ask) -> tuple[bytes, bytes]:
    """Return a message as the edge's outbox holds it, and as the next process finds it there."""
    from tacit.privacy.ledger import Ledger
    from tacit_services.worker.outbox import Outbox

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        with closing(Ledger(path, "audit")) as ledger:
            outbox = Outbox(ledger, "audit")
            outbox.put(outbox.next_seq(), ask())
            first = outbox.oldest()
        with closing(Ledger(path, "audit")) as ledger:
            second = Outbox(ledger, "audit").oldest()
    assert first is not None
    assert second is not None
    return bytes(first[1]), bytes(second[1])


def forked(ask: Ask, count: int) -> list[bytes]:
    """Return `count` messages that a forked child sends, on a system that forks.

    Raises ServiceError when the child ends before.
    """
    assert hasattr(os, "fork")
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python warns of a fork of a process with threads; this child uses none.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            with open(writer, "wb") as pipe:  # noqa: PTH123  (a descriptor)
                for _ in range(count):
                    message = ask()
                    pipe.write(len(message).to_bytes(_LENGTH, "big") + message)
            code = 0
        finally:
            os._exit(code)  # without the parent's exit handlers, which are to run once
    os.close(writer)
    with open(reader, "rb") as pipe:  # noqa: PTH123
        sent = []
        while head := pipe.read(_LENGTH):
            sent.append(pipe.read(int.from_bytes(head, "big")))
    os.waitpid(child, 0)
    if len(sent) != count:
        raise ServiceError(f"audit: a forked child sent {len(sent)} of {count} messages")
    return sent


def second_accountant() -> Epsilon | None:
    """Return Opacus's PRV accountant as a function; None where Opacus is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Opacus's own imports
            from opacus.accountants import PRVAccountant
    except ImportError:
        return None

    def epsilon(rate: float, z: float, count: int, delta: float) -> float:
        accountant = PRVAccountant()
        accountant.history = [(z, rate, count)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return float(accountant.get_epsilon(delta))

    return epsilon
