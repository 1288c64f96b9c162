"""`tacit join`, `tacit offers` and `tacit leave`: what an owner of rows does in a federation."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.errors import ConfigError
from tacit_services.cli.option_group import option_group
from tacit_services.cli.options import AsJson
from tacit_services.cli.say import print_line
from tacit_services.cli.systemd_unit import unit_text
from tacit_services.extras import need
from tacit_services.transport import rest_client

if TYPE_CHECKING:
    from tacit_services.member.member_state import MemberState

StateFolder = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", envvar="TACIT_STATE", help="what this member keeps"),
]


@dataclass(frozen=True, slots=True)
class JoinFlags:
    """The options of `tacit join`, beside the host and the state. None: as before."""

    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="the rows: a file, a folder, or module:name [as before]"),
    ] = None
    token: Annotated[
        str | None,
        typer.Option(envvar="TACIT_JOIN_TOKEN", help="the join token [a member already]"),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(envvar="TACIT_JOIN_FILE", help="file with the token (serve --join-file)"),
    ] = None
    ca: Annotated[
        str | None,
        typer.Option(metavar="sha256:…", envvar="TACIT_CA", help="by what the host is known"),
    ] = None
    as_: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="what people call this member [host]")
    ] = None
    name: Annotated[
        str | None, typer.Option("--name", help="whose ledger the data has [its path]")
    ] = None
    rows: Annotated[
        int | None, typer.Option(min=1, help="public: rows that this member states [the offer's]")
    ] = None
    published: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="no rows of one's own: a part of published data sets, from here"
        ),
    ] = None
    policy: Annotated[
        Path | None, typer.Option(envvar="TACIT_POLICY", help="what the owner allows (TOML)")
    ] = None
    yes: Annotated[
        bool, typer.Option("--yes", help='ask nothing: the policy says accept = "within"')
    ] = False
    page: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", envvar="TACIT_PAGE", help="serve a page for the owner [none]"
        ),
    ] = None
    states: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar="TACIT_STATES",
            help="be the first member here whose process does not run, else a new one",
        ),
    ] = None
    health_file: Annotated[
        Path | None,
        typer.Option(envvar="TACIT_HEALTH_FILE", help="says how it stands, for tacit health"),
    ] = None


def _join(
    url: Annotated[str, typer.Argument(metavar="URL", help="the host: https://HOST:PORT")],
    state: StateFolder = None,
    *,
    flags: JoinFlags,
    systemd: Annotated[
        bool, typer.Option("--systemd", help="print a unit for systemd, and leave")
    ] = False,
) -> None:
    """Join a federation with rows that stay here, and work in its runs: a member stays one."""
    need("edge" if flags.page is None else "aggregator")
    from tacit_services.member import known_states, membership

    if flags.page is not None:
        from tacit_services.member.owner_page import check_address

        check_address(flags.page)
    folder = state or known_states.default_state(url)
    if systemd:
        _print_unit(folder, url, flags)
        return
    asked = membership.JoinOrder(
        url=url, token=flags.token or rest_client.token(flags.token_file), ca=flags.ca,
        name=flags.as_, data=flags.data, dataset=flags.name, rows=flags.rows,
        policy=flags.policy, yes=flags.yes,
        ask=sys.stdin.isatty() and not flags.yes, published=flags.published,
        health=flags.health_file, page=flags.page,
    )  # fmt: skip
    if flags.states is None:
        membership.join(folder, asked, print_line)
    elif state is None:
        membership.join_as_free(flags.states, asked, print_line)
    else:
        raise ConfigError(
            f"--states {flags.states}: not with --state; one of them says where it is"
        )


join = option_group(_join, "flags", JoinFlags)


def offers(
    action: Annotated[str, typer.Argument(metavar="[list|show|accept|decline|withdraw]")] = "list",
    run: Annotated[str | None, typer.Argument(metavar="RUN", show_default=False)] = None,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="accept: the researcher's key is another one now")
    ] = False,
    state: StateFolder = None,
    as_json: AsJson = False,
) -> None:
    """List offers, show one, or answer it: accept, decline, withdraw."""
    need("edge")
    from tacit_services.member import answering
    from tacit_services.member.offer_commands import OfferCommands
    from tacit_services.settings import data_home

    member = _state(state)
    if action == "list":
        listed = answering.listed(member, data_home())
        typer.echo(json.dumps(listed, indent=2) if as_json else answering.as_lines(listed))
        return
    answers = OfferCommands(answering.OwnerAnswers(member, data_home()))
    if action not in answers.actions:
        known = "list, " + ", ".join(answers.actions)
        raise ConfigError(f"offers {action}: expected {known}")
    if run is None:
        raise ConfigError(f"offers {action}: RUN: missing; `tacit offers` lists them")
    act = answers.confirm if action == "accept" and new_key else answers.actions[action]
    typer.echo(act(run))


def leave(state: StateFolder = None) -> None:
    """End the membership, also while `join` works; says what the ledger remembers, for good."""
    need("edge")
    from tacit_services.member import leaving
    from tacit_services.settings import data_home
    from tacit_services.transport.proxy import Proxies

    proxies = Proxies.of_environment(os.environ)
    typer.echo(leaving.leave(_state(state), proxies, data_home()))


def _state(state: Path | None) -> MemberState:
    from tacit_services.member import known_states

    return known_states.known_state(state)


def _print_unit(state: Path, url: str, flags: JoinFlags) -> None:
    place = state.resolve()
    words = ["join", url, "--state", str(place)]
    if flags.policy is not None:
        words += ["--policy", str(flags.policy.resolve())]
    if flags.yes:
        words.append("--yes")
    if flags.page is not None:
        words += ["--page", flags.page]
    text = unit_text(f"tacit member, {place}", words, "Restart=on-failure", "RestartSec=5")
    typer.echo(text, nl=False)
