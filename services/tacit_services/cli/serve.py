"""`tacit serve`: open a federation, or go on with the one that is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from tacit_services.cli.option_group import option_group
from tacit_services.cli.say import print_line
from tacit_services.cli.systemd_unit import unit_text
from tacit_services.extras import need

ServedFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="the federation's folder", show_default=False)
]


@dataclass(frozen=True, slots=True)
class ServeFlags:
    """The settings of a federation, as flags; None: not stated. Names: FederationSettings'."""

    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", envvar="TACIT_LISTEN", help="the one port [default: 0.0.0.0:8443]"
        ),
    ] = None
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            envvar="TACIT_HOSTS",
            metavar="NAME",
            help="name or address under which members reach this machine; may be repeated, the "
            "first is shown [default: what is found]",
        ),
    ] = None
    broker: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="TACIT_BROKER",
            help="an organisation's own; of a cluster all nodes, with commas between "
            "[default: one is started]",
        ),
    ] = None
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="TACIT_STORE",
            help="an organisation's own [default: one is started]",
        ),
    ] = None
    certificate: Annotated[
        Path | None,
        typer.Option(envvar="TACIT_CERTIFICATE", help="for HTTPS, of a name that the world knows"),
    ] = None
    key: Annotated[Path | None, typer.Option(envvar="TACIT_KEY", help="its key")] = None
    organisation_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="TACIT_ORGANISATION_CA",
            help="roots of an organisation's own authority, for --certificate and --broker",
        ),
    ] = None
    data: Annotated[
        Path | None, typer.Option(envvar="TACIT_DATA", help="folder with published test sets")
    ] = None
    parallel: Annotated[
        int | None,
        typer.Option(min=1, envvar="TACIT_PARALLEL", help="runs that train at a time [default: 4]"),
    ] = None
    token_uses: Annotated[
        int | None,
        typer.Option(
            min=1, envvar="TACIT_TOKEN_USES", help="how many may join by the token [default: any]"
        ),
    ] = None
    token_hours: Annotated[
        float | None,
        typer.Option(min=0, envvar="TACIT_TOKEN_HOURS", help="hours of its life [default: 24]"),
    ] = None
    certificate_days: Annotated[
        float | None,
        typer.Option(
            min=0,
            envvar="TACIT_CERTIFICATE_DAYS",
            help="days of a member's certificate [default: 365]",
        ),
    ] = None
    join_file: Annotated[
        Path | None,
        typer.Option(
            envvar="TACIT_JOIN_FILE", help="gets the token that is printed: join --token-file"
        ),
    ] = None
    show: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="TACIT_SHOW",
            help="plain HTTP, for this machine: page and REST of the newest run [default: none]",
        ),
    ] = None
    log: Annotated[
        str | None, typer.Option(envvar="TACIT_LOG", help="debug, info or warning [default: info]")
    ] = None

    def stated(self) -> dict[str, object]:
        """Return the flags by name; what was not stated is None."""
        flags = {each.name: getattr(self, each.name) for each in fields(self)}
        return flags | {"hosts": self.hosts or None}


def _serve(
    folder: ServedFolder,
    *,
    flags: ServeFlags,
    systemd: Annotated[
        bool, typer.Option("--systemd", help="print a unit for systemd, and leave")
    ] = False,
) -> None:
    """Serve a federation: authority, broker, store, enrolment, REST, and its runs, at one port."""
    need("aggregator")
    stated = flags.stated()
    if systemd:
        _print_unit(folder, stated)
        return
    from tacit_services import logs
    from tacit_services.federation import host as federation_host
    from tacit_services.federation.federation_settings import read

    logs.to_stderr(read(folder, stated).log)
    federation_host.serve(folder, stated, print_line)


serve = option_group(_serve, "flags", ServeFlags)


def _print_unit(folder: Path, flags: Mapping[str, object]) -> None:
    place = folder.resolve()
    words = ["serve", str(place)]
    for name, value in flags.items():
        values = value if isinstance(value, list) else [value]
        option = "--" + {"hosts": "host"}.get(name, name).replace("_", "-")
        words += [word for each in values if each is not None for word in (option, _word(each))]
    text = unit_text(
        f"tacit federation in {place}", words, "Restart=always", "RestartSec=2",
        "ProtectSystem=strict", f"ReadWritePaths={place}", "PrivateTmp=true",
    )  # fmt: skip
    typer.echo(text, nl=False)


def _word(value: object) -> str:
    """Return a flag's value for a service, which begins in another folder."""
    return str(value.resolve() if isinstance(value, Path) else value)
