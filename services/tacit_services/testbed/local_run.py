"""`tacit run`: broker, store, aggregator and edges as child processes of one command.

On published data it is a testbed: its edges are simulated, so every run begins with fresh ledgers.
The services by themselves never do that: there, a ledger belongs to its data for life. So it does
here, where the data is the user's own.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from tacit_client import ApiError, Client, Status, Unreachable

from tacit import config
from tacit.config.definition import Definition
from tacit.config.party_columns import ColumnsData
from tacit.config.preflight import warnings
from tacit.errors import ConfigError, ServiceError
from tacit_services.children.processes import (
    Child,
    free_port,
    restart_if_dead,
    start_broker,
    start_store,
    stopping,
)
from tacit_services.disk.secret_file import kept_secret
from tacit_services.display import live, text_tables
from tacit_services.display.answers_table import answers_table
from tacit_services.identity.own_ledgers import LedgerOrigin
from tacit_services.launch import INTERRUPTED
from tacit_services.settings import data_home, policy_beside
from tacit_services.testbed import output_folder, own_budget
from tacit_services.tracking.run_trackers import need_trackers
from tacit_services.worker import cpu_turns


def run(
    file: Path,
    *,
    edges: int | None,
    out: Path,
    serve: str | None,
    seed: int | None,
    data: Path | None,
    as_json: bool,
    policy: Path | None = None,
    journal: Path | None = None,
    resume: bool = False,
    keep: bool = False,
    observe: Callable[[Status], None] = lambda status: None,
    listening: Callable[[str], AbstractContextManager[object]] = contextlib.nullcontext,
) -> int:
    """Run everything until the run has ended; returns the exit code.

    resume: go on with the run that was stopped in `out`. keep: serve the page and REST on after the
    end, until SIGINT or SIGTERM. `observe` is called with every status that is polled (for
    benchmarks). `listening` is given the broker's address and stays open while the run lasts (for
    measurements). Raises TacitError for bad input before anything is started.
    """
    console = text_tables.console(stderr=as_json)
    started = time.monotonic()
    run_file = config.load(file, edges=edges, seed=seed)
    policy = policy or policy_beside(file.parent)
    definition = run_file.define()
    _check(definition, data, policy, journal, resume)
    http = _free_address(serve)
    children: list[Child] = []
    with ExitStack() as beside:
        state = _opened(beside, definition, out, console, run_file.notes, edges, resume)
        _print_addresses(http, state / "token", console, keep=keep)
        shared = _of_the_run(definition, file, edges, seed, data, policy)
        shared["TACIT_RUN_ID"] = _run_id(definition, state)
        # `tacit predict` goes on with these.
        (state / output_folder.MARKER).write_text(json.dumps(shared), encoding="utf-8")
        shared |= salt(definition, state)
        shared |= environment({"TACIT_JOURNAL_FILE": journal and journal.absolute()})
        beside.enter_context(cpu_turns.pipe(state / "turns", os.cpu_count() or 1))
        interrupted = beside.enter_context(stopping(children))
        broker = start_broker(state, children)
        beside.enter_context(listening(broker.address))
        store = start_store(state, children)
        console.print(live.opening(definition, broker.kind, store.kind, http))
        shared |= {"TACIT_BROKER": broker.address}
        server = aggregator(shared | _places(store.address, out, http, keep=keep), state)
        _start([server, *workers(definition, shared, state)], children)
        code = _watch(definition, out, server, children, http, console, interrupted, observe)
        seconds = time.monotonic() - started
        if keep and not code:
            _show_summary(definition, out, console, as_json, seconds)
            _serve_on(http, console, interrupted)
            return 0
    if not code:
        _show_summary(definition, out, console, as_json, seconds)
    return code


def _opened(
    beside: ExitStack,
    definition: Definition[Any],
    out: Path,
    console: Console,
    notes: Sequence[str],
    edges: int | None,
    resume: bool,
) -> Path:
    """Lock the run's folder, open its budget, and say what begins; returns the folder of its state.

    beside: what must be undone at the end. Raises TacitError.
    """
    alike = _refused(definition, resume)
    beside.enter_context(output_folder.locked(out))
    output_folder.refuse(out, resume)
    origins = beside.enter_context(_budget(definition))  # the rows have their ledger from now on
    ledgers = [*alike, *_ledgers(definition, origins, resume)]
    if resume:
        state = output_folder.kept(out)
    else:
        state = output_folder.fresh(out, console)
    beside.callback(output_folder.delete_rows, out)  # once nobody reads them: after `stopping`
    notes = [*notes, *warnings(definition, definition.build_model().size)]
    _print_preamble(definition, edges, notes, ledgers, console)
    return state


def _check(
    definition: Definition[Any],
    data: Path | None,
    policy: Path | None,
    journal: Path | None,
    resume: bool,
) -> None:
    """Raise ConfigError, DataError or PrivacyError for what is better refused before the start."""
    if policy is not None:
        refused = own_budget.forbidden(
            definition, policy
        )  # every edge judges the run file by it, again
        if refused is not None:
            raise refused
    need_trackers(definition.tracking)
    definition.build_model()
    definition.source.check(data)
    exists = journal is not None and journal.exists() and not resume
    if journal is not None and (exists or not journal.absolute().parent.is_dir()):
        if exists:
            why = "there is such a file, and a journal is never overwritten"
        else:
            why = "no such directory"
        raise ConfigError(f"--journal {journal}: {why}")


def _refused(definition: Definition[Any], resume: bool) -> list[str]:
    """Refuse what the ledgers and the test set speak against; returns what to tell of that set.

    No data is known to a ledger by that. Raises TacitError.
    """
    remarks = [] if resume else [f"note: {remark}" for remark in definition.source.remarks()]
    if _has_ledgers(definition):
        return [*remarks, *own_budget.refused(definition, data_home(), resume=resume)]
    return remarks + own_budget.refuse_private_test(definition, data_home(), rows_known=False)


def _has_ledgers(definition: Definition[Any]) -> bool:
    """Return whether it trains on own data, which has its ledgers in the user's data folder."""
    return bool(definition.source.owned(0)) and not os.environ.get("TACIT_LEDGER")


def _budget(definition: Definition[Any]) -> AbstractContextManager[list[LedgerOrigin]]:
    """Return the budget of own data, held against another run of it; of any other, nothing."""
    if _has_ledgers(definition):
        return own_budget.held(definition, data_home())
    return contextlib.nullcontext([])


def _places(store: str, out: Path, http: str, *, keep: bool) -> dict[str, str]:
    """Return where this run's aggregator keeps, writes and serves."""
    places = {"TACIT_STORE": store, "TACIT_OUT": str(out), "TACIT_HTTP": http}
    return places | ({"TACIT_LINGER": "true"} if keep else {})


def _serve_on(http: str, console: Console, interrupted: threading.Event) -> None:
    console.print(f"serving on: http://{http}/ (Ctrl-C ends it)")
    interrupted.wait()


def _print_addresses(http: str, token: Path, console: Console, *, keep: bool) -> None:
    if keep:
        until = "until Ctrl-C"
    else:
        until = "until the end; --keep serves it on"
    console.print(f"watch it: http://{http}/ (in a moment; {until})")
    console.print(f"to end it early: tacit halt --url http://{http} --token-file {token}")


def _start(ours: list[Child], children: list[Child]) -> None:
    """Start `ours`, as some of the `children` that the run's end stops."""
    children.extend(ours)
    for child in ours:
        child.start()


def _of_the_run(
    definition: Definition[Any],
    file: Path,
    edges: int | None,
    seed: int | None,
    data: Path | None,
    policy: Path | None,
) -> dict[str, str]:
    """Return the variables of every child of the run, also when `tacit predict` starts it."""
    return environment(
        {
            "TACIT_RUN_FILE": file.absolute(),
            "TACIT_DATA": data and data.absolute(),
            "TACIT_EDGES": edges,
            "TACIT_SEED": seed,
            "TACIT_POLICY": policy,
        }
    )


def salt(definition: Definition[Any], state: Path) -> dict[str, str]:
    """Return the secret that names people of own columns, where no other is set; kept in `state`.

    Raises ConfigError.
    """
    if not isinstance(definition.data, ColumnsData) or "TACIT_SALT" in os.environ:
        return {}
    return {"TACIT_SALT": kept_secret(state / "salt", "TACIT_SALT")}


def _run_id(definition: Definition[Any], state: Path) -> str:
    """Return the run's name in the store; each `tacit ask` has another, which a resumed one keeps.

    What an edge may spend on questions is counted by it.
    """
    if "TACIT_RUN_ID" in os.environ:
        return os.environ["TACIT_RUN_ID"]
    if definition.ask is None:
        return definition.run.name
    marker = state / output_folder.MARKER
    try:
        return str(json.loads(marker.read_text(encoding="utf-8"))["TACIT_RUN_ID"])
    except (ValueError, KeyError):
        return f"{definition.run.name[:50]}-{secrets.token_hex(6)}"


def _ledgers(
    definition: Definition[Any], origins: list[LedgerOrigin], resume: bool
) -> Iterator[str]:
    """Yield what to tell of the run's ledgers. Raises PrivacyError where they pay for nothing."""
    if origins:
        home = data_home()
        yield from own_budget.opening(
            definition, own_budget.left(definition, home), home, origins, resume
        )
        own_budget.register(definition, home)
    else:
        yield live.ledgers(definition, bool(os.environ.get("TACIT_LEDGER")))


def _print_preamble(
    definition: Definition[Any],
    edges: int | None,
    notes: list[str],
    ledgers: list[str],
    console: Console,
) -> None:
    if edges is not None and edges != definition.edges.count:
        console.print(
            f"{definition.algorithm.name} is centralised: one edge holds all the data "
            f"(--edges {edges} ignored)"
        )
    for note in notes:
        console.print(f"note: {note}")
    for line in ledgers:
        console.print(line)


def environment(values: dict[str, object]) -> dict[str, str]:
    """Return the variables of every child: `values` that are not None, and one thread each."""
    variables = {name: str(value) for name, value in values.items() if value is not None}
    return {"TACIT_THREADS": "1"} | variables


def aggregator(shared: dict[str, str], state: Path) -> Child:
    """Return the run's aggregator, not started; what it must keep lies in `state`."""
    secrets = {
        "TACIT_TOKEN_FILE": "token",
        "TACIT_RECEIPTS": "receipts.key",
        "TACIT_TRUSTED": "trusted.db",
        "TACIT_LABELS": "labels.safetensors",
    }
    return Child(
        "aggregator",
        ["tacit", "aggregator"],
        shared | {name: str(state / file) for name, file in secrets.items()},
        state / "aggregator.log",
    )


def workers(definition: Definition[Any], shared: dict[str, str], state: Path) -> list[Child]:
    """Return the run's edges, peers or parties, not started; their identities lie in `state`."""
    return [
        _edge(definition.algorithm.worker, number, shared, state)
        for number in range(definition.edges.count)
    ]


def _show_summary(
    definition: Definition[Any], out: Path, console: Console, as_json: bool, seconds: float
) -> None:
    """Show the summary.

    An aggregator that was stopped before the run's end ends well, but writes none.
    """
    try:
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ServiceError(
            f"aggregator: was stopped before the run's end; see {out}/state/aggregator.log"
        ) from error
    if summary["applied"] < definition.run.updates:
        console.print(
            f"the run ended early ({summary['reason']}): {summary['applied']} of "
            f"{definition.run.updates} updates"
        )
    if definition.ask is not None:
        _show_answers(summary.get("answers", []), out, console, as_json)
    elif as_json:
        Console().print_json(data=summary, ensure_ascii=True)
    else:
        console.print(live.closing(summary, out, seconds))


def _show_answers(
    answers: list[dict[str, Any]], out: Path, console: Console, as_json: bool
) -> None:
    """Show the answers to a run's questions. Raises ServiceError where no edge has answered."""
    if not answers:
        raise ServiceError(f"no edge has answered; see {out}/state")
    if as_json:
        Console().print_json(data=answers, ensure_ascii=True)
    else:
        console.print(answers_table(answers))
        console.print(f"answers in {out}/answers.json")


def _edge(service: str, number: int, shared: dict[str, str], state: Path) -> Child:
    environment = shared | {
        "TACIT_IDENTITIES": str(state / "identities"),
        "TACIT_IDENTITY": str(number),
    }
    environment |= {"TACIT_TURNS": str(state / "turns")}
    return Child(f"edge-{number}", ["tacit", service], environment, state / f"edge-{number}.log")


def _watch(
    definition: Definition[Any],
    out: Path,
    aggregator: Child,
    children: list[Child],
    http: str,
    console: Console,
    interrupted: threading.Event,
    observe: Callable[[Status], None],
) -> int:
    """Show progress and restart children that die, until the run has ended.

    The aggregator has then ended well, or has written the results in `out` and serves on.
    """
    token_file = os.environ.get("TACIT_READ_TOKEN_FILE")  # the aggregator has it, too
    if token_file:
        token = kept_secret(Path(token_file), "TACIT_READ_TOKEN_FILE")
    else:
        token = None
    with (
        Client(f"http://{http}", token, timeout=5.0) as client,
        live.RunProgress(console, definition.run.updates) as progress,
    ):
        while (code := aggregator.code()) != 0:
            if interrupted.wait(1.0):
                console.print(
                    "interrupted: no results are written (`tacit halt` ends a run with them; "
                    "the same command with --resume goes on)"
                )
                return INTERRUPTED
            for child in children:
                restart_if_dead(child)
            if code is None:
                with contextlib.suppress(Unreachable, ApiError):
                    status = client.status()
                    progress.show(status)
                    observe(status)
                    if status.over and (out / "summary.json").exists():  # it serves on
                        return 0
    return 0


def _free_address(serve: str | None) -> str:
    """Return the address of the REST interface: `serve`, or a free port of the loopback.

    `serve` is checked now, so that a refusal comes at once.
    """
    if serve is None:
        return f"127.0.0.1:{free_port()}"
    host, _, port = serve.rpartition(":")
    if not host or port == "0":
        raise ConfigError(f"--serve {serve!r}: expected HOST:PORT")
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(port)))
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"--serve {serve!r}: expected HOST:PORT") from error
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        if in_use:
            remedy = "; name another port, or leave --serve out for a free one"
        else:
            remedy = ""
        raise ServiceError(f"--serve {serve}: {error.strerror or error}{remedy}") from error
    return serve
