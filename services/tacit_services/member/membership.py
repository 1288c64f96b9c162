"""`tacit join`: a membership begins, or goes on, until SIGTERM."""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tacit.errors import ConfigError, ServiceError
from tacit.privacy.policy import Policy
from tacit_services import logs
from tacit_services.enrollment import certificates
from tacit_services.identity.folder import Identities
from tacit_services.identity.ledger_loan import LifetimeBound
from tacit_services.member import leaving
from tacit_services.member.becoming_member import joined
from tacit_services.member.believed import believed
from tacit_services.member.data_ledger import DataLedger
from tacit_services.member.handing_over import HandingOver
from tacit_services.member.host_client import HostClient, HostRefusesError
from tacit_services.member.judge import Judge
from tacit_services.member.look_record import LookRecord
from tacit_services.member.member_loop import MemberLoop
from tacit_services.member.member_state import Membership, MemberState, StateInUse
from tacit_services.member.own_certificate import OwnCertificate
from tacit_services.member.owner_terminal import OwnerTerminal
from tacit_services.member.run_diary import RunDiaries
from tacit_services.member.worker_process import worker_process
from tacit_services.offers.offer import Offer
from tacit_services.settings import data_home, load_policy
from tacit_services.signals import stopping
from tacit_services.transport import pinned_authority
from tacit_services.transport.pinned_authority import PREFIX
from tacit_services.transport.proxy import Proxies
from tacit_services.worker.heartbeat import Heartbeat

log = logging.getLogger("tacit.member")
_WHO = "this process is {}, and its state is in {}"


@dataclass(frozen=True, slots=True)
class JoinOrder:
    """What was asked of `tacit join`; None: as before, or the default.

    token: as it was given away, SECRET, or SECRET.SHA256, which says what `ca` does. published: a
    folder of published data sets, in place of rows. ask: whether there is somebody at a terminal to
    be asked. health: the file that says how the member stands. page: where the owner's
    page is served, or None.
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
    published: Path | None = None
    health: Path | None = None


class NotAMemberError(ConfigError):
    """A state folder is of no member of this federation, or of none any more."""


def join(folder: Path, asked: JoinOrder, say: Callable[[str], None]) -> None:
    """Join, or go on as a member, and work until SIGTERM or SIGINT. say: prints a line at once.

    Raises TacitError.
    """
    state = MemberState(folder)
    with state.locked():
        _work(state, asked, say, state.folder / "published")


def join_as_free(folder: Path, asked: JoinOrder, say: Callable[[str], None]) -> None:
    """Do as `join`, as the first member of `folder` whose process does not run, or as a new one.

    So a process that replaces another goes on as the member that it was. Their states are in
    `folder`/members, and ledgers of published parts in `folder`, where those of `tacit edge` are.
    States of members that were revoked or have left, or of another federation, are passed over.
    Raises TacitError.
    """
    for number in itertools.count():
        state = MemberState(folder / "members" / str(number))
        try:
            with state.locked():
                _work(state, asked, say, folder)
                return
        except StateInUse:
            continue
        except HostRefusesError as error:
            if not error.outcast:
                raise
            say(f"{state.folder}: is passed over: {error}")
        except NotAMemberError as error:
            say(f"{state.folder}: is passed over: {error}")


def _work(state: MemberState, asked: JoinOrder, say: Callable[[str], None], parts: Path) -> None:
    """Be the member of `state`, which is locked. parts: for ledgers of published parts."""
    if state.is_left:
        raise NotAMemberError(f"--state {state.folder}: `tacit leave` was begun there; do it again")
    proxies = Proxies.of_environment(os.environ)
    membership = _membership(state, asked, proxies, say, parts)
    policy = load_policy(None if membership.policy is None else Path(membership.policy))
    _check_policy(policy, membership, asked)
    stop = stopping()
    leaving.watch(state, stop)
    certificate = OwnCertificate(state, membership, proxies, stop=stop)
    certificate.check()
    web = membership.public_web
    with (
        closing(Heartbeat(asked.health)) as heartbeat,
        HostClient(membership.url, state.tls, proxies, public_web=web, stop=stop) as host,
        ExitStack() as held,
    ):
        heartbeat.stands("starting", membership.member)
        identity = Identities(
            state.folder / "identities", 0, called=f"{membership.name} ({membership.member})"
        ).acquire(1, stop)
        if identity is None:
            return
        held.callback(identity.close)
        logs.to_stderr("info")  # from here on: an identity's number is none of the federation's
        bound = LifetimeBound(policy.lifetime_epsilon, policy.lifetime_delta)
        ledger = DataLedger(identity, data_home(), bound)
        held.callback(ledger.release)
        if asked.page is not None:
            say(held.enter_context(_page(asked.page, state, bound)))
        say("waits for offers; the same command goes on after an end or a reboot")
        ask = OwnerTerminal(state, data_home(), say).ask if asked.ask else _nobody
        part = None if membership.published is None else Path(membership.published)
        judge = Judge(host, state, policy, ask, data_home(), part)
        make = partial(worker_process, state, membership, ledger, proxies, policy.hours)
        loop = MemberLoop(
            host, state, judge.look, make, RunDiaries(state, data_home()), fetch=judge.fetch,
            before=partial(_renew, certificate, host), may_work=judge.may_work,
            idle=ledger.release, stands=heartbeat.stands,
            hand_over=HandingOver(host, state).hand_over,
        )  # fmt: skip
        heartbeat.watch(lambda: loop.hears_host)
        loop.run(stop)


def _page(address: str, state: MemberState, bound: LifetimeBound) -> AbstractContextManager[str]:
    from tacit_services.member.owner_page import owner_page  # its libraries are an extra's

    return owner_page(address, state, data_home(), bound)


def _renew(certificate: OwnCertificate, host: HostClient) -> None:
    if certificate.renew():
        host.show_newest()


def _membership(
    state: MemberState, asked: JoinOrder, proxies: Proxies, say: Callable[[str], None], parts: Path
) -> Membership:
    """Return the membership of `state`, begun where there is none, with what was asked now."""
    known = state.membership()
    if known is not None:
        _check_federation(state, known, asked)
    if known is None:
        known = _begun(state, asked, proxies, parts)
        say(f"{known.name} has joined {known.url}: {_WHO.format(known.member, state.folder)}")
    elif (again := _begun_again(state, known, asked, proxies)) is not None:
        known = again
        say(f"{known.name} has joined {known.url} again, as {known.member} as before")
    elif known.url != asked.url.rstrip("/"):
        raise ConfigError(
            f"--state {state.folder}: is a membership at {known.url}; where that host has moved, "
            "its new line (with --token and --ca) goes on"
        )
    else:
        say(f"{known.name} goes on at {known.url}: {_WHO.format(known.member, state.folder)}")
    data = _data(asked) or known.data
    newest = replace(
        known,
        data=data,
        dataset=asked.dataset or (known.dataset if _data(asked) is None else data),
        rows=asked.rows or known.rows,
        policy=known.policy if asked.policy is None else str(asked.policy.absolute()),
        published=_published(asked, parts, known.published),
    )
    if newest != known:
        state.keep(newest)
    return newest


def _begun(state: MemberState, asked: JoinOrder, proxies: Proxies, parts: Path) -> Membership:
    data = _data(asked)
    if data is None:
        raise ConfigError("--data: missing; this member's rows: a file, a folder, or module:name")
    token, ca = _shown(asked)
    if asked.policy is not None:
        load_policy(asked.policy)  # a mistake in it is better said before the host knows us
    authority = pinned_authority.fetched(asked.url, ca, proxies)
    url = asked.url.rstrip("/")
    identity, name = joined(state, url, token, authority, asked.name, proxies)
    policy = None if asked.policy is None else str(asked.policy.absolute())
    here = str(Path.cwd())
    dataset = asked.dataset or data
    web = authority.public_web
    published = _published(asked, parts, None)
    membership = Membership(
        url, identity, name, data, dataset, asked.rows, policy, here, web, published
    )
    state.keep(membership)
    return membership


def _check_federation(state: MemberState, known: Membership, asked: JoinOrder) -> None:
    """Raise NotAMemberError where the token that was shown now is of another federation."""
    _, _, digest = (asked.token or "").partition(".")
    if digest and believed(state, known).pin() != PREFIX + digest:
        raise NotAMemberError(f"--state {state.folder}: is a membership in another federation")


def _shown(asked: JoinOrder) -> tuple[str, str]:
    """Return the join token's secret, and what the host is known by. Raises ConfigError."""
    if asked.token is None:
        raise ConfigError("--token and --ca: missing; `tacit serve` prints the whole line")
    secret, _, digest = asked.token.partition(".")
    ca = asked.ca or (PREFIX + digest if digest else None)
    if ca is None:
        raise ConfigError("--ca: missing; `tacit serve` prints the whole line")
    return secret, ca


def _data(asked: JoinOrder) -> str | None:
    """Return where the rows are, own or published ones; None: as before. Raises ConfigError."""
    if asked.published is None:
        return None if asked.data is None else _place(asked.data)
    for option, value in (("--data", asked.data), ("--rows", asked.rows)):
        if value is not None:
            raise ConfigError(f"{option} {value}: not with --published, which stands for no rows")
    if not asked.published.is_dir():
        raise ConfigError(f"--published {asked.published}: no such folder")
    return str(asked.published.resolve())


def _published(asked: JoinOrder, parts: Path, known: str | None) -> str | None:
    """Return where the ledger of a published part is; None: the member has rows of its own."""
    if asked.published is not None:
        return str(parts.resolve())
    return known if asked.data is None else None


def _begun_again(
    state: MemberState, known: Membership, asked: JoinOrder, proxies: Proxies
) -> Membership | None:
    """Join again with the key of before.

    Its certificate has ended, or the host has moved, or its line names others to be believed. None
    where nothing is so, or no line is there to join by. Raises ConfigError where the host at a new
    address is of another federation.
    """
    url = asked.url.rstrip("/")
    if asked.token is None:
        return None
    stays = url == known.url and not OwnCertificate(state, known, proxies).has_ended()
    if stays and asked.ca in (None, believed(state, known).pin()):
        return None
    token, ca = _shown(asked)
    try:
        authority = pinned_authority.fetched(url, ca, proxies)
    except (ConfigError, ServiceError):
        if stays:  # a line of before: what is there goes on
            return None
        raise
    if not certificates.is_same(state.tls.ca.read_bytes(), authority.ca.encode("ascii")):
        raise ConfigError(
            f"--state {state.folder}: is a membership at {known.url}, and {url} is another "
            "federation; name another --state"
        )
    _, name = joined(state, url, token, authority, None, proxies, before=known.member)
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
    if membership.published is not None and policy.lifetime_epsilon is not None:
        raise ConfigError(
            f"policy lifetime_epsilon={policy.lifetime_epsilon}: is of rows of one's own, and "
            "--published has none; leave it out"
        )
