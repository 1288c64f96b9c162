"""`tacit ledger list | show | verify | export`: reads an edge's own ledger, and changes nothing.

`tacit ledger move` takes it to another place, `tacit ledger join` makes one of two. `tacit ledger`
alone asks a run's aggregator; that is in main.py.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.errors import ConfigError, DataError, PrivacyError
from tacit_services.cli.options import AsJson
from tacit_services.cli.say import say
from tacit_services.transport.json_numbers import finite_or_none

if TYPE_CHECKING:
    from tacit.privacy.ledger.chain import Chain
    from tacit_services.identity.own_ledgers import DataLedgers

app = typer.Typer(name="ledger")  # its callback, in main.py, asks the aggregator of a run

Place = Annotated[
    Path | None,
    typer.Argument(
        metavar="PATH|DIR",
        help="ledger file, or the folder with ledger.db in it; or --state",
        show_default=False,
    ),
]
MemberFolder = Annotated[
    Path | None,
    typer.Option(
        "--state", metavar="DIR", envvar="TACIT_STATE", help="of a member: the ledger of its data"
    ),
]
Delta = Annotated[float, typer.Option(help="δ at which ε is read")]


@app.command("list", epilog="Example: tacit ledger list")
def list_(delta: Delta = 1e-5, as_json: AsJson = False) -> None:
    """List the ledgers in your data folder, by the names of their data: ε, releases, runs."""
    from tacit_services.identity import own_ledgers
    from tacit_services.settings import data_home

    documents = [_summary(account, delta) for account in own_ledgers.accounts(data_home())]
    if as_json:
        typer.echo(json.dumps(documents, indent=2))
        return
    _print_list(documents, delta)


@app.command(epilog="Example: tacit ledger show clinic")
def show(
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|PATH|DIR",
            help="name of own data (data.name), a ledger file, or the folder with ledger.db in "
            "it; or --state",
            show_default=False,
        ),
    ] = None,
    state: MemberFolder = None,
    delta: Delta = 1e-5,
    as_json: AsJson = False,
) -> None:
    """Show what the data of an edge has paid, by its own ledger; of own data, of every edge."""
    from tacit.privacy.ledger.file import is_database

    if place is None:
        _show_member(state, delta, as_json)
        return
    path = _file(Path(place))
    # Data may be called as a file is, so a name that is no database is looked up.
    if not is_database(path) and (account := _account(place, path)) is not None:
        _show_account(account, delta, as_json)
        return
    chains = _verified(path)
    documents = [_document(path, chain, delta) for chain in chains]
    if as_json:
        typer.echo(json.dumps(documents, indent=2))
        return
    for chain, document in zip(chains, documents, strict=True):
        _print(chain, document)


@app.command(epilog="Example: tacit ledger verify identities/3")
def verify(place: Place = None, state: MemberFolder = None, as_json: AsJson = False) -> None:
    """Recompute the hash chain from the rows; exit code 5 if any was changed, dropped or moved."""
    paths = _files(place, state)
    positions = [_position(path, chain) for path in paths for chain in _verified(path)]
    if as_json:
        typer.echo(json.dumps(positions, indent=2))
        return
    for position in positions:
        what = f"{position['dataset']}: the chain of {position['releases']} releases is whole"
        say(f"{position['file']}: {what}")
        say(f"head {position['head']}")


@app.command(epilog="Example: tacit ledger export identities/3 --out 3.json")
def export(
    place: Place = None,
    state: MemberFolder = None,
    out: Annotated[
        Path | None, typer.Option(help="file to write, instead of standard output")
    ] = None,
    delta: Delta = 1e-5,
    as_json: Annotated[bool, typer.Option("--json", help="it is JSON in any case")] = False,
) -> None:
    """Write the ledger as JSON: every row with its head, and ε by both accountants."""
    paths = _files(place, state)
    if out is not None and any(_is_ledger(out, path) for path in paths):
        raise ConfigError(f"--out {out}: that is the ledger itself, which is never overwritten")
    documents = [
        _document(path, chain, delta) | {"entries": _entries(chain)}
        for path in paths
        for chain in _verified(path)
    ]
    text = json.dumps(documents, indent=2)
    if out is None:
        typer.echo(text)
        return
    try:
        _write(out, text + "\n")
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror or error}") from error
    typer.echo(
        json.dumps({"file": str(out)})
        if as_json
        else f"{out}: {sum(d['count'] for d in documents)} releases"
    )


@app.command(epilog="Example: tacit ledger move identities/3 /data/ledger-3.db")
def move(
    source: Annotated[
        Path, typer.Argument(metavar="FROM", help="ledger file, or the folder with ledger.db in it")
    ],
    target: Annotated[
        Path, typer.Argument(metavar="TO", help="file that is not there yet, or a folder")
    ],
    as_json: AsJson = False,
) -> None:
    """Move a ledger as a whole, while no edge uses it; after a kill the same command goes on."""
    from tacit_services.identity import moving

    old = _file(source)
    new = _file(target)
    chains = moving.move(old, new)
    if as_json:
        typer.echo(json.dumps([_position(new, chain) for chain in chains], indent=2))
        return
    for chain in chains:
        say(f"{new}: {chain.dataset}: {chain.releases} releases, moved from {old}")


@app.command(epilog='Example: tacit ledger join clinic "/data/2026-10/patients.csv"')
def join(
    one: Annotated[str, typer.Argument(help="name of own data that has a ledger: it stays")],
    other: Annotated[str, typer.Argument(help="name of other data of the same people")],
    as_json: AsJson = False,
) -> None:
    """Make one ledger of two of own data: every edge starts from the composition of both spends.

    For good: no command takes them apart again.
    """
    from tacit_services.identity import joining
    from tacit_services.settings import data_home

    joined = joining.join(data_home(), one, other)
    if as_json:
        typer.echo(json.dumps({"names": list(joined.names)}, indent=2))
        return
    typer.echo(
        f"{one}: has the ledger of {other}, too; each edge starts from the composition of both"
    )


def _file(place: Path) -> Path:
    if place.is_dir():
        return place / "ledger.db"
    return place


def _files(place: Path | None, state: Path | None) -> list[Path]:
    """Return the ledger that a place names, or those of a member's data. Raises ConfigError."""
    if place is not None:
        return [_file(place)]
    return list(_of_member(state)[1].edges.values())


def _of_member(state: Path | None) -> tuple[str, DataLedgers]:
    """Return what a member's data is called, and its ledgers. Raises ConfigError, DataError."""
    from tacit_services.identity import own_ledgers
    from tacit_services.member import known_states
    from tacit_services.settings import data_home

    if state is None:
        raise ConfigError("PATH or --state DIR: missing; `tacit ledger list` lists all ledgers")
    member = known_states.known_state(state).membership()
    if member is None:
        raise ConfigError(f"--state {state}: is of no member; `tacit ledger list` lists ledgers")
    account = own_ledgers.account(member.dataset, data_home())
    if account is None:
        raise DataError(f"--state {state}: its data, {member.dataset}, has spent nothing yet")
    return member.dataset, account


def _show_member(state: Path | None, delta: float, as_json: bool) -> None:
    """Show the ledger of a member's data, and what each run has spent by it."""
    from tacit_services.member import known_states, run_spending
    from tacit_services.settings import data_home

    dataset, account = _of_member(state)
    _show_account(account, delta, as_json)
    if not as_json:
        consents = known_states.known_state(state).consents().all()
        names = {consent.fingerprint: consent.run for consent in consents}
        spent = run_spending.histories(dataset, data_home())
        for line in run_spending.memory_lines(dataset, spent, names):
            say(line)


def _summary(account: DataLedgers, delta: float) -> dict[str, Any]:
    """Return what `tacit ledger list` has of some data: of its edges, the one that paid most."""
    from tacit.privacy import ledger

    edges = [
        _document(path, chain, delta)
        for path in account.edges.values()
        for chain in _verified(path)
    ]
    epsilons = [edge["epsilon_pld"] for edge in edges]
    runs = {run for path in account.edges.values() for run in ledger.read_run_histories(path)}
    return {
        "name": account.names[0],
        "names": account.names,
        "unit": account.unit,
        "edges": len(edges),
        "releases": sum(edge["releases"] for edge in edges),
        "delta": delta,
        "epsilon_pld": None if None in epsilons else max(epsilons, default=0.0),
        "runs": len(runs - {""}),
    }


def _account(name: str, path: Path) -> DataLedgers | None:
    """Return the ledgers of the data that is called so; None: it is a path.

    Raises DataError where there is neither, PrivacyError for a damaged register.
    """
    from tacit_services.identity import own_ledgers
    from tacit_services.settings import data_home

    account = own_ledgers.account(name, data_home())
    if account is None and not path.exists():
        raise DataError(
            f"ledger {path}: there is no such file, and no data called {name} has a ledger in "
            f"{data_home()}"
        )
    return account


def _show_account(account: DataLedgers, delta: float, as_json: bool) -> None:
    documents = []
    for edge, path in account.edges.items():
        of_edge = [_document(path, chain, delta) for chain in _verified(path)]
        documents += [{"edge": f"edge-{edge}"} | document for document in of_edge]
    if account.started is not None:
        of_start = [
            _document(account.started, chain, delta) for chain in _verified(account.started)
        ]
        documents += [{"edge": "at the start"} | document for document in of_start]
    if as_json:
        of_data = {"names": account.names, "unit": account.unit, "dealing": account.dealing}
        typer.echo(json.dumps(of_data | {"ledgers": documents}, indent=2))
        return
    _print_account(account, documents, delta)


def _is_ledger(out: Path, ledger: Path) -> bool:
    """Return whether `out` is the ledger or a file beside it of SQLite or a move, by any link."""
    real = os.path.realpath(ledger)
    reserved = [
        Path(real + suffix) for suffix in ("", "-wal", "-shm", "-journal", ".moved", ".moving")
    ]
    return Path(os.path.realpath(out)) in reserved or any(
        out.exists() and file.exists() and out.samefile(file) for file in reserved
    )


def _write(out: Path, text: str) -> None:
    """Write all of the text or nothing; a device or a pipe is written to, not replaced.

    Raises OSError.
    """
    target = Path(os.path.realpath(out))
    if target.exists() and not target.is_file():
        target.write_text(text, encoding="utf-8")
        return
    temporary = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _verified(path: Path) -> list[Chain]:
    """Return the chain of every dataset, verified.

    Raises DataError (no file), PrivacyError (not a ledger, or a broken chain).
    """
    from tacit.privacy import ledger

    chains = ledger.read_chains(path)
    for chain in chains:
        try:
            chain.verify()
            chain.history()
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise PrivacyError(f"ledger {path}: {error}") from error
    return chains


def _position(path: Path, chain: Chain) -> dict[str, Any]:
    return {
        "file": str(path),
        "dataset": chain.dataset,
        "lineage": chain.lineage.hex(),
        "count": chain.count,
        "head": chain.head.hex(),
        "releases": chain.releases,
    }


def _document(path: Path, chain: Chain, delta: float) -> dict[str, Any]:
    from tacit.privacy import accounting

    if not 0 < delta < 1:
        raise ConfigError(f"--delta {delta}: expected a number between 0 and 1")
    history = chain.history()
    pld = accounting.epsilon_pld(history, delta)
    rdp = accounting.epsilon_rdp(history, delta)
    return _position(path, chain) | {
        "delta": delta,
        "epsilon_pld": finite_or_none(pld),
        "epsilon_rdp": finite_or_none(rdp),
    }


def _entries(chain: Chain) -> list[dict[str, Any]]:
    return [
        {
            "session": entry.session.hex(),
            "sampling_rate": float.fromhex(entry.sampling_rate),
            "noise_multiplier": float.fromhex(entry.noise_multiplier),
            "mechanism": entry.mechanism,
            "secret": entry.secret,
            "count": entry.count,
            "head": entry.head.hex(),
        }
        for entry in chain.rows
    ]


def _print_account(account: DataLedgers, documents: list[dict[str, Any]], delta: float) -> None:
    from rich.table import Table

    from tacit_services.display import text_tables

    first, *others = account.names
    say(f"{first}: whose privacy: {account.unit}; dealt {account.dealing or 'a file an edge'}")
    if others:
        say(f"known as {', '.join(others)}, too")
    if not documents:
        say("nothing was ever spent")
        return
    table = Table(box=None, header_style="bold")
    for name in ("edge", "releases", f"ε at δ {delta:g}", "ledger"):
        table.add_column(name, justify="left" if name in ("edge", "ledger") else "right")
    for document in documents:
        spent = text_tables.epsilon(document["epsilon_pld"])
        file = text_tables.cell(document["file"])
        file.overflow = "fold"
        table.add_row(document["edge"], str(document["releases"]), spent, file)
    text_tables.console().print(table)


def _print_list(documents: list[dict[str, Any]], delta: float) -> None:
    from rich.table import Table

    from tacit_services.display import text_tables

    if not documents:
        say("no data of yours has a ledger")
        return
    table = Table(box=None, header_style="bold")
    for name in ("data", "whose privacy", "edges", "releases", f"ε at δ {delta:g}", "runs"):
        left = name in ("data", "whose privacy")
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for document in documents:
        table.add_row(
            text_tables.cell(document["name"]),
            text_tables.cell(document["unit"]),
            str(document["edges"]),
            str(document["releases"]),
            text_tables.epsilon(document["epsilon_pld"]),
            str(document["runs"]),
        )
    text_tables.console().print(table)


_SIDES = {"both": "", "training": ", rows trained on", "held_out": ", rows held out"}


def _print(chain: Chain, document: dict[str, Any]) -> None:
    from rich.table import Table

    from tacit_services.display import text_tables

    console = text_tables.console()
    pld = text_tables.epsilon(document["epsilon_pld"])
    rdp = text_tables.epsilon(document["epsilon_rdp"])
    console.print(
        f"{chain.dataset}: {chain.releases} releases, ε {pld} (PLD), {rdp} (RDP) at δ "
        f"{document['delta']:g}"
    )
    console.print(f"chain whole, head {chain.head.hex()}")
    table = Table(box=None, header_style="bold")
    for name in ("mechanism", "q", "z", "releases"):
        table.add_column(name, justify="left" if name == "mechanism" else "right")
    for row in chain.history():
        table.add_row(
            text_tables.cell(row.mechanism + _SIDES[row.side]),
            f"{row.sampling_rate:.6g}",
            f"{row.noise_multiplier:.6g}",
            str(row.count),
        )
    console.print(table)
