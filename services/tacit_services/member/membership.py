"""`tacit join`: a membership begins, or goes on, until SIGTERM."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tacit.errors import ConfigError
from tacit.privacy.policy import Policy
from tacit_services import logs
from tacit_services.identity.folder import Identities
from tacit_services.identity.ledger_loan import LifetimeBound
from tacit_services.member import leaving
from tacit_services.member.becoming_member import joined
from tacit_services.member.data_ledger import DataLedger
from tacit_services.member.host_client import HostClient
from tacit_services.member.judge import Judge
from tacit_services.member.look_record import LookRecord
from tacit_services.member.member_loop import MemberLoop
from tacit_services.member.member_state import Membership, MemberState
from tacit_services.member.own_certificate import OwnCertificate
from tacit_services.member.owner_terminal import OwnerTerminal
from tacit_services.member.run_diary import RunDiaries
from tacit_services.member.worker_process import worker_process
from tacit_services.offers.offer import Offer
from tacit_services.settings import data_home, load_policy
from tacit_services.signals import stopping
from tacit_services.transport import pinned_authority
from tacit_services.transport.proxy import Proxies

log = logging.getLogger("tacit.member")
_STRANGE = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class JoinOrder:
    """What was asked of `tacit join`; None: as before, or the default.

    ask: whether there is somebody at a terminal to be asked. page: where the owner's page is
    served, or None.
    """

    url: str
    token: str | None
    ca: str | None
    name: str | None
    data: str | None
    dataset: str | None
    rows: int | None
    policy: Path | None
    yes: bool
    ask: bool
    page: str | None = None


def default_state(url: str) -> Path:
    """Return the folder of a membership at `url`, in the user's data folder."""
    place = _STRANGE.sub("-", url.removeprefix("https://")).strip("-")
    return data_home() / "members" / (place or "host")


def known_state(folder: Path | None) -> MemberState:
    """Return the state in `folder`, or the only one that this user has. Raises ConfigError."""
    if folder is not None:
        if not folder.is_dir():
            raise ConfigError(f"--state {folder}: no such folder")
        return MemberState(folder)
    known = sorted(path.parent for path in (data_home() / "members").glob("*/member.json"))
    if len(known) != 1:
        have = "no membership" if not known else f"{len(known)} memberships"
        raise ConfigError(f"--state: missing; {have} in {data_home() / 'members'}")
    return MemberState(known[0])


def join(folder: Path, asked: JoinOrder, say: Callable[[str], None]) -> None:
    """Join, or go on as a member, and work until SIGTERM or SIGINT. say: prints a line at once.

    Raises TacitError.
    """
    state = MemberState(folder)
    proxies = Proxies.of_environment(os.environ)
    with state.locked():
        if state.is_left:
            raise ConfigError(f"--state {folder}: `tacit leave` was begun there; do it again")
        membership = _membership(state, asked, proxies, say)
        certificate = OwnCertificate(state, membership, proxies)
        certificate.check()
        policy = load_policy(None if membership.policy is None else Path(membership.policy))
        _check_policy(policy, membership, asked)
        stop = stopping()
        leaving.watch(state, stop)
        web = membership.public_web
        with (
            HostClient(membership.url, state.tls, proxies, public_web=web) as host,
            ExitStack() as parts,
        ):
            identity = Identities(
                state.folder / "identities", 0, called=f"{membership.name} ({membership.member})"
            ).acquire(1, stop)
            if identity is None:
                return
            parts.callback(identity.close)
            logs.to_stderr("info")  # from here on: an identity's number is none of the federation's
            bound = LifetimeBound(policy.lifetime_epsilon, policy.lifetime_delta)
            ledger = DataLedger(identity, data_home(), bound)
            parts.callback(ledger.release)
            if asked.page is not None:
                say(parts.enter_context(_page(asked.page, state)))
            say("waits for offers; the same command goes on after an end or a reboot")
            terminal = OwnerTerminal(state, say)
            judge = Judge(host, state, policy, terminal.ask if asked.ask else _nobody)
            make = partial(worker_process, state, membership, ledger, proxies, policy.hours)
            loop = MemberLoop(
                host, state, judge.look, make, RunDiaries(state, data_home()), fetch=judge.fetch,
                before=partial(_renew, certificate, host), may_work=judge.may_work,
                idle=ledger.release,
            )  # fmt: skip
            loop.run(stop)


def _page(address: str, state: MemberState) -> AbstractContextManager[str]:
    from tacit_services.member.owner_page import owner_page  # its libraries are an extra's

    return owner_page(address, state, data_home())


def _renew(certificate: OwnCertificate, host: HostClient) -> None:
    if certificate.renew():
        host.show_newest()


def _membership(
    state: MemberState, asked: JoinOrder, proxies: Proxies, say: Callable[[str], None]
) -> Membership:
    """Return the membership of `state`, begun where there is none, with what was asked now."""
    known = state.membership()
    if known is None:
        known = _begun(state, asked, proxies)
        say(
            f"{known.name} has joined {known.url} as {known.member}; its state is in {state.folder}"
        )
    elif (again := _begun_again(state, known, asked, proxies)) is not None:
        known = again
        say(f"{known.name} has joined {known.url} again, as {known.member} as before")
    elif known.url != asked.url.rstrip("/"):
        raise ConfigError(
            f"--state {state.folder}: is a membership at {known.url}; where that host has moved, "
            "its new line (with --token and --ca) goes on"
        )
    else:
        say(f"{known.name} ({known.member}) goes on at {known.url}")
    data = known.data if asked.data is None else _place(asked.data)
    newest = replace(
        known,
        data=data,
        dataset=asked.dataset or (known.dataset if asked.data is None else data),
        rows=asked.rows or known.rows,
        policy=known.policy if asked.policy is None else str(asked.policy.absolute()),
    )
    if newest != known:
        state.keep(newest)
    return newest


def _begun(state: MemberState, asked: JoinOrder, proxies: Proxies) -> Membership:
    if asked.data is None:
        raise ConfigError("--data: missing; this member's rows: a file, a folder, or module:name")
    data = _place(asked.data)
    if asked.token is None or asked.ca is None:
        raise ConfigError("--token and --ca: missing; `tacit serve` prints the whole line")
    if asked.policy is not None:
        load_policy(asked.policy)  # a mistake in it is better said before the host knows us
    authority = pinned_authority.fetched(asked.url, asked.ca, proxies)
    url = asked.url.rstrip("/")
    identity, name = joined(state, url, asked.token, authority, asked.name, proxies)
    policy = None if asked.policy is None else str(asked.policy.absolute())
    here = str(Path.cwd())
    dataset = asked.dataset or data
    web = authority.public_web
    membership = Membership(url, identity, name, data, dataset, asked.rows, policy, here, web)
    state.keep(membership)
    return membership


def _begun_again(
    state: MemberState, known: Membership, asked: JoinOrder, proxies: Proxies
) -> Membership | None:
    """Join again with the key of before: its certificate has ended, or the host has moved.

    Returns None where neither is so, or no line is there to join by. Raises ConfigError where the
    host at a new address is of another federation.
    """
    url = asked.url.rstrip("/")
    if asked.token is None or asked.ca is None:
        return None
    if url == known.url and not OwnCertificate(state, known, proxies).has_ended():
        return None
    authority = pinned_authority.fetched(url, asked.ca, proxies)
    if state.tls.ca.read_text(encoding="ascii") != authority.ca:
        raise ConfigError(
            f"--state {state.folder}: is a membership at {known.url}, and {url} is another "
            "federation; name another --state"
        )
    _, name = joined(state, url, asked.token, authority, None, proxies, before=known.member)
    newest = replace(known, url=url, name=name, public_web=authority.public_web)
    state.keep(newest)
    return newest


def _place(data: str) -> str:
    """Return `--data` as it is kept: a path is absolute. Raises ConfigError for what is not there.

    An owner's own reader, module:name, stays as it is.
    """
    path = Path(data)
    if path.exists():
        return str(path.resolve())
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", data):
        return data
    raise ConfigError(f"--data {data}: no such file or folder")


def _nobody(offer: Offer, record: LookRecord) -> None:
    """Ask nobody: `tacit offers` answers."""


def _check_policy(policy: Policy, membership: Membership, asked: JoinOrder) -> None:
    if asked.yes and (membership.policy is None or policy.accept != "within"):
        raise ConfigError('--yes: needs --policy FILE with accept = "within"')
