"""`tacit doctor`: what stands between this machine and its federation, in a line each."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.errors import ConfigError
from tacit_services.cli.join import StateFolder
from tacit_services.cli.options import AsJson
from tacit_services.cli.say import say
from tacit_services.extras import need

if TYPE_CHECKING:
    from tacit_services.doctor.diagnosis import Diagnosis


def doctor(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Argument(metavar="URL", help="a host: https://HOST:PORT [the member's]")
    ] = None,
    state: StateFolder = None,
    ca: Annotated[
        str | None, typer.Option(metavar="sha256:…", envvar="TACIT_CA", help="of the join line")
    ] = None,
    federation: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", envvar="TACIT_FEDERATION", help="at a host: its folder"),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Look at what a member or a host needs: one line each, and what to do. Spends nothing.

    Exits with 0 where nothing is ill, else with 1.
    """
    need("edge")
    logging.getLogger("tacit").addHandler(logging.NullHandler())  # what is ill is said by a line
    state_typed = _is_typed(context, "state")
    if federation is not None and (url is not None or state is not None):
        if _is_typed(context, "federation"):
            if url is not None or state_typed:
                raise ConfigError("--federation: looks at a host; leave URL and --state out")
        elif url is None and not state_typed:
            raise ConfigError(
                "TACIT_FEDERATION, TACIT_STATE: both are set; name --federation or --state"
            )
        else:
            federation = None  # what is typed goes before the environment
    if federation is not None:
        looks = _of_host(federation)
    else:
        looks = _of_member(url, state, ca, state_typed=state_typed)
    diagnoses = []
    for diagnosis in looks:
        diagnoses.append(diagnosis)
        if not as_json:
            say(diagnosis.line())
    if as_json:
        typer.echo(json.dumps([diagnosis.to_json() for diagnosis in diagnoses], indent=2))
    return int(any(diagnosis.is_ill for diagnosis in diagnoses))


def _is_typed(context: typer.Context, option: str) -> bool:
    """Return whether an option stands in the command, and not in the environment."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def _of_host(folder: Path) -> Iterator[Diagnosis]:
    """Return the diagnoses of a host. Raises ConfigError where none is in `folder`."""
    from tacit_services.doctor.host_doctor import HostDoctor

    return HostDoctor(folder).diagnoses()


def _of_member(
    url: str | None, folder: Path | None, ca: str | None, *, state_typed: bool
) -> Iterator[Diagnosis]:
    """Return the diagnoses of a member, or of a machine that wants to be one.

    state_typed: whether `folder` stands in the command. Raises ConfigError where nothing says which
    host is meant, or two are.
    """
    from tacit_services.doctor.host_route import HostRoute
    from tacit_services.doctor.member_doctor import MemberDoctor
    from tacit_services.member.known_states import default_state, known_state
    from tacit_services.member.member_state import MemberState
    from tacit_services.transport.proxy import Proxies

    state: MemberState | None = None
    if url is None or folder is not None:
        state = known_state(folder)
    elif default_state(url).is_dir():
        state = MemberState(default_state(url))
    membership = None if state is None else state.membership()
    if url is not None and membership is not None and membership.url != url.rstrip("/"):
        if state_typed:
            raise ConfigError(f"URL {url}: --state {folder} is a membership at {membership.url}")
        membership = None  # the address that is typed says which host is meant
    address = url if membership is None else membership.url
    if address is None:
        raise ConfigError("URL: missing; this machine is no member, so which host is meant?")
    route = HostRoute(address, Proxies.of_environment(os.environ))
    return MemberDoctor(route, None if membership is None else state, ca).diagnoses()
