"""`tacit pki`: certificates for broker, aggregator and edges, and the server where edges enroll."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.errors import ConfigError
from tacit_services.cli.options import AsJson
from tacit_services.enrollment.acl import BROKER
from tacit_services.extras import need

if TYPE_CHECKING:
    from tacit_services.enrollment.authority import CertificateAuthority

app = typer.Typer(
    name="pki", help="Certificates: make an authority, issue, revoke, let edges enrol."
)

AuthorityFolder = Annotated[
    Path, typer.Option("--dir", envvar="TACIT_PKI", help="the authority's folder")
]
Days = Annotated[int, typer.Option(min=1, max=3650, help="how long a certificate is valid")]
DEFAULT = Path("pki")
LOOPBACK = ("localhost", "127.0.0.1")
SERVERS = (BROKER, "enrollment")
# In the broker's folder, the rules of a run: of mosquitto's plugin, its `acl_file`, RabbitMQ's.
RULES = "dynamic-security.json"
ACL = "acl"
DEFINITIONS = "rabbitmq.json"
EDGES = "edges"  # the folder with what an edge needs in order to enrol: ca.crt and token


# The options of `init`.
NewFolder = Annotated[
    Path, typer.Argument(metavar="DIR", envvar="TACIT_PKI", help="the authority's folder")
]
Servers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=HOST,…",
        help="a server and its hosts [default: broker and enrollment, loopback]",
    ),
]
Clients = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="a client [default: aggregator]")
]
SharedToken = Annotated[
    str | None,
    typer.Option(
        metavar="PATTERN", help=f"also DIR/{EDGES}: a shared token for these edges, ca.crt"
    ),
]
KeyGroups = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="the group of this key's file may read it")
]
ForRun = Annotated[
    bool,
    typer.Option(
        "--run",
        help=f"for the run of TACIT_RUN_FILE and TACIT_RUN_ID: DIR/{BROKER}/{RULES}, {ACL}, "
        f"{DEFINITIONS}, and a token in DIR/{EDGES} for its edges only",
    ),
]
RunCount = Annotated[
    int,
    typer.Option(
        min=1,
        max=99,
        metavar="N",
        help="rules for N runs of these edges, TACIT_RUN_ID and then TACIT_RUN_ID-2 "
        "to -N, for which the broker needs no restart",
    ),
]
Keep = Annotated[
    bool,
    typer.Option(
        "--keep",
        help="keep what is there; make what is missing, renew what ends within 30 days "
        "[with --run: always]",
    ),
]


@app.command(epilog="Example: tacit pki init --server broker=broker.example.org --token 'edge-*'")
def init(
    folder: NewFolder = DEFAULT,
    server: Servers = None,
    client: Clients = None,
    token: SharedToken = None,
    group: KeyGroups = None,
    run: ForRun = False,
    runs: RunCount = 1,
    days: Days = 365,
    keep: Keep = False,
    as_json: AsJson = False,
) -> None:
    """Make an authority in DIR, and a folder for each server and client."""
    from tacit_services.enrollment.authority import CA, CertificateAuthority

    hosts_by_name = _servers(server) | dict.fromkeys(
        ["aggregator"] if client is None else client, ()
    )
    exists = (keep or run) and (folder / CA).exists()
    if exists:
        authority = CertificateAuthority(folder)
    else:
        authority = CertificateAuthority.create(folder)
    with authority.locked():
        created = [
            name
            for name, hosts in hosts_by_name.items()
            if _ensured(authority, name, hosts, days, name in (group or []), server is not None)
        ]
        ruled: list[str] = []
        if run:
            ruled, token = _prepared_for_run(folder, runs, group=BROKER in (group or []))
        if token is not None and _token_for_edges(authority, token):
            created.append(EDGES)
    kept = [name for name in hosts_by_name if name not in created]
    content = {"dir": str(folder), "made": created, "kept": kept, "rules": ruled}
    written = f"{folder}: {', '.join(created) or 'no new certificate'}; "
    if ruled:
        written += (
            f"the broker's rules are those of {_listed(ruled)}: restart it, unless it has them; "
        )
    _show(content, as_json, f"{written}ca.key stays here, and opens everything")


def _listed(runs: list[str]) -> str:
    if len(runs) > 2:
        return f"{len(runs)} runs, {runs[0]}, {runs[1]} to {runs[-1]}"
    return f"run {' and '.join(runs)}"


def _servers(entries: list[str] | None) -> dict[str, tuple[str, ...]]:
    if entries is None:
        return dict.fromkeys(SERVERS, LOOPBACK)
    servers = {}
    for item in entries:
        name, _, hosts = item.partition("=")
        if not hosts:
            raise ConfigError(f"--server {item!r}: expected NAME=HOST,HOST")
        servers[name] = tuple(hosts.split(","))
    return servers


def _ensured(
    authority: CertificateAuthority,
    name: str,
    hosts: tuple[str, ...],
    days: int,
    group: bool,
    stated: bool,
) -> bool:
    """Issue or renew the certificate of `name`; False where it is there and not due.

    stated: whether the caller named the hosts. A renewed server keeps its own where not.
    """
    from tacit_services.enrollment import certificates
    from tacit_services.enrollment.authority import KEY, RENEW_DAYS

    if not (authority.folder / name / KEY).exists():
        authority.issue(name, hosts, days, group=group)
        return True
    issued = authority.issued(name)
    if issued and not certificates.due(issued[-1], RENEW_DAYS):
        return False
    authority.renew(name, hosts if stated else (), days)
    return True


def _prepared_for_run(folder: Path, count: int, *, group: bool) -> tuple[list[str], str]:
    """Write the broker's rules for `count` runs, the first that of the environment.

    Returns the names of the runs, and the pattern of their edges' names.
    """
    from tacit_services.disk import files

    runs, names, texts = _run_rules(count)
    if not (folder / BROKER).is_dir():
        raise ConfigError(f"--run: {folder / BROKER} is missing; name the server {BROKER}")
    for name, text in texts.items():
        # Mosquitto warns of rules that everybody may read: a later one will refuse them.
        mode = files.GROUP if group else files.SECRET
        files.write_for_owner(folder / BROKER / name, text.encode(), mode)
    return runs, f"edge-0..{len(names) - 1}"


def _run_rules(count: int) -> tuple[list[str], tuple[str, ...], dict[str, str]]:
    """Return the names of `count` runs and of their edges, and the broker's files for them.

    The first run, and the edges, are the environment's.
    """
    from tacit_services.enrollment.acl import acl, federation, plugin
    from tacit_services.enrollment.rabbitmq_rules import definitions
    from tacit_services.settings import ServiceSettings, read_settings

    settings = read_settings(ServiceSettings)
    definition = settings.load_run().define()
    peers = definition.algorithm.worker == "peer"
    forms = {RULES: plugin, ACL: acl, DEFINITIONS: definitions}
    runs = federation(settings.run_id, count)
    texts = {file: form(runs, definition.worker_names, peers=peers) for file, form in forms.items()}
    return runs, definition.worker_names, texts


@app.command("acl", epilog="Example: TACIT_RUN_FILE=run.toml tacit pki acl")
def acl_(
    plugin: Annotated[
        bool, typer.Option("--plugin", help="for mosquitto's plugin for dynamic security: JSON")
    ] = False,
    runs: RunCount = 1,
) -> None:
    """Print the broker's ACL for the run of TACIT_RUN_FILE and TACIT_RUN_ID."""
    typer.echo(_run_rules(runs)[2][RULES if plugin else ACL], nl=False)


def _token_for_edges(authority: CertificateAuthority, pattern: str) -> bool:
    from tacit_services.disk import files
    from tacit_services.enrollment import certificates
    from tacit_services.enrollment.authority import CA
    from tacit_services.enrollment.tokens import TokenRegister

    folder = authority.folder / EDGES
    register = TokenRegister(authority.folder)
    if (folder / "token").exists():
        register.limit((folder / "token").read_text(encoding="ascii").strip(), pattern)
        return False
    folder.mkdir(exist_ok=True)
    files.write(folder / CA, certificates.pem(authority.certificate), files.PUBLIC)
    files.write(folder / "token", (register.add(pattern, once=False) + "\n").encode(), files.SECRET)
    return True


@app.command(epilog="Example: tacit pki issue edge-3")
def issue(
    name: Annotated[str, typer.Argument(help="for an edge: its id")],
    host: Annotated[
        list[str] | None, typer.Option(help="DNS name or address of a server; may be repeated")
    ] = None,
    folder: AuthorityFolder = DEFAULT,
    days: Days = 365,
    renew: Annotated[
        bool, typer.Option("--renew", help="a new certificate for the key that is there")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make key and certificate of NAME, in the folder DIR/NAME."""
    from tacit_services.enrollment.authority import CertificateAuthority

    authority = CertificateAuthority(folder)
    with authority.locked():
        if renew:
            make = authority.renew
        else:
            make = authority.issue
        bundle = make(name, host or (), days)
    _show(
        {"name": name, "dir": str(bundle)},
        as_json,
        f"{bundle}: bring this folder to the machine of {name}",
    )


@app.command(epilog="Example: tacit pki revoke edge-3")
def revoke(name: str, folder: AuthorityFolder = DEFAULT, as_json: AsJson = False) -> None:
    """Revoke every certificate of NAME; the broker uses the new list after its next start."""
    from tacit_services.enrollment.authority import REVOKED, CertificateAuthority

    authority = CertificateAuthority(folder)
    with authority.locked():
        count = authority.revoke(name)
    if count:
        what = f"{name}: {count} certificates revoked"
    else:
        what = f"{name}: was revoked already"
    _show(
        {"name": name, "revoked": count},
        as_json,
        f"{what}; bring {folder / REVOKED} to the broker and restart it",
    )


@app.command(epilog="Example: tacit pki token --once edge-3")
def token(
    edges: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN", help="edge's id, or a pattern such as 'edge-0..7' or 'edge-*'"
        ),
    ],
    once: Annotated[
        bool, typer.Option("--once", help="for one edge only; may also reopen a revoked name")
    ] = False,
    folder: AuthorityFolder = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Make a token with which an edge can enrol, and print it; only its digest is kept."""
    from tacit_services.enrollment.authority import CertificateAuthority
    from tacit_services.enrollment.tokens import TokenRegister

    authority = CertificateAuthority(folder)
    with authority.locked():
        secret = TokenRegister(folder).add(edges, once=once)
    _show({"edges": edges, "once": once, "token": secret}, as_json, secret)


@app.command("list", epilog="Example: tacit pki list")
def list_(folder: AuthorityFolder = DEFAULT, as_json: AsJson = False) -> None:
    """Show who has a certificate, until when, and who had one."""
    from tacit_services.enrollment.authority import CertificateAuthority

    authority = CertificateAuthority(folder)
    revoked = authority.revoked()
    rows = []
    for name in authority.names():
        newest = authority.issued(name)[-1]
        if newest.serial_number in revoked:
            state = "revoked"
        else:
            state = "valid"
        rows.append({"name": name, "state": state, "until": newest.not_valid_after_utc.isoformat()})
    _show(
        rows,
        as_json,
        "\n".join(f"{row['name']:<24} {row['state']:<8} {row['until'][:10]}" for row in rows),
    )


@app.command(epilog="Example: tacit pki serve --listen 0.0.0.0:8443")
def serve(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="where edges may enrol (HTTPS)")
    ] = "127.0.0.1:8443",
    folder: AuthorityFolder = DEFAULT,
    days: Days = 365,
) -> None:
    """Let edges enrol: POST /v1/enroll, over HTTPS, with the certificate in DIR/enrollment."""
    need("aggregator")
    from tacit_services import logs
    from tacit_services.enrollment import rest
    from tacit_services.transport.address import checked

    try:
        checked(listen)
    except ValueError as error:
        raise ConfigError(f"--listen {listen!r}: {error}") from error
    logs.to_stderr("info")
    rest.serve(folder, listen, days)


def _show(content: Any, as_json: bool, text: str) -> None:
    typer.echo(json.dumps(content, indent=2) if as_json else text)
