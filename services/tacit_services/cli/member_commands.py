"""`tacit members`: who is in a federation, and who may come."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from tacit.errors import ConfigError
from tacit_services.cli import run_commands
from tacit_services.cli.options import AsJson
from tacit_services.cli.reach import Reach, reaching

app = typer.Typer(
    name="members", help="Members of a federation: list, invite, cancel, revoke, readmit."
)
MemberName = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@app.callback(invoke_without_command=True)
@reaching
def members(context: typer.Context, *, reach: Reach, as_json: AsJson = False) -> None:
    """Show who is a member, since when, last heard of when."""
    if context.invoked_subcommand is None:
        _list(reach, as_json)


@app.command("list", epilog="Example: tacit members list --federation clinic")
@reaching
def list_(*, reach: Reach, as_json: AsJson = False) -> None:
    """Show who is a member, since when, last heard of when, and which tokens are open."""
    _list(reach, as_json)


def _list(reach: Reach, as_json: bool) -> None:
    with reach.client() as client:
        content = client.get("/v1/members")
    if as_json:
        typer.echo(json.dumps(content, indent=2))
        return
    from tacit_services.display import text_tables

    console = text_tables.console()
    console.print(text_tables.members(console, content))


@app.command(epilog="Example: tacit members invite ada --role researcher --federation clinic")
@reaching
def invite(
    name: MemberName,
    role: Annotated[str, typer.Option(help="member, researcher or reader")] = "member",
    uses: Annotated[
        int | None,
        typer.Option(min=1, help="how many may join by it; members alone [default: any]"),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="DATE", help="last day, 2026-12-31 [default: for good]")
    ] = None,
    *,
    reach: Reach,
    as_json: AsJson = False,
) -> None:
    """Make a token: for members a line to join with, for people the token itself."""
    body = {"name": name, "role": role, "uses": uses, "until": _seconds(until)}
    with reach.client() as client:
        given = client.post("/v1/members/invite", body)
    _say(given, as_json, given["line"])


@app.command(epilog="Example: tacit members cancel ada --federation clinic")
@reaching
def cancel(name: MemberName, *, reach: Reach, as_json: AsJson = False) -> None:
    """Let the token of NAME be worth nothing from now on; who has joined with it stays."""
    with reach.client() as client:
        client.post("/v1/members/cancel", {"name": name})
    _say({"name": name, "cancelled": True}, as_json, f"{name}: its token is worth nothing now")


@app.command(epilog="Example: tacit members revoke 'St. Mary' --federation clinic")
@reaching
def revoke(name: MemberName, *, reach: Reach, as_json: AsJson = False) -> None:
    """End the membership of NAME: it says nothing more, in any run."""
    with reach.client() as client:
        revoked = client.post("/v1/members/revoke", {"name": name})
    line = f"{revoked['name']} ({revoked['id']}) is no member any more"
    if tokens := revoked["open_tokens"]:
        line += f"; its machine may join anew by {', '.join(tokens)} (tacit members cancel NAME)"
    _say(revoked, as_json, line)


@app.command(epilog="Example: tacit members readmit 'St. Mary' --run retina --federation clinic")
@reaching
def readmit(
    name: MemberName,
    run: Annotated[str, typer.Option("--run", metavar="RUN", help="the run", show_default=False)],
    *,
    reach: Reach,
    as_json: AsJson = False,
) -> None:
    """End the quarantine that a run's guard has put NAME into."""
    run_commands.readmit(reach, name, run, as_json)


def _seconds(until: str | None) -> float | None:
    """Return the end of a day, in seconds since 1970."""
    if until is None:
        return None
    try:
        day = datetime.fromisoformat(until)
    except ValueError as error:
        raise ConfigError(f"--until {until!r}: expected a date, 2026-12-31") from error
    if len(until) <= 10:
        day = day.replace(hour=23, minute=59, second=59)
    return day.replace(tzinfo=day.tzinfo or UTC).timestamp()


def _say(content: dict[str, Any], as_json: bool, line: str) -> None:
    typer.echo(json.dumps(content, indent=2) if as_json else line)
