"""`tacit leave`: a membership ends, also while its process works."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tacit.errors import ConfigError, PrivacyError, ServiceError
from tacit_services.member import run_spending
from tacit_services.member.handing_over import HandingOver
from tacit_services.member.host_client import HostClient
from tacit_services.member.member_state import Membership, MemberState
from tacit_services.transport.proxy import Proxies

_SECONDS = 60.0  # that the process which works may take to end
_TICK = 0.2


def leave(state: MemberState, proxies: Proxies, home: Path) -> str:
    """End the membership, and return what to tell.

    Every consent is taken back first, so nothing leaves from then on. The process that works is
    asked to end, the host is told, and the membership is forgotten; key, answers and ledger stay.
    home: the user's data folder. Raises ConfigError where the process does not end.
    """
    membership = state.membership()
    if membership is None:
        raise ConfigError(f"--state {state.folder}: is of no member")
    names = {consent.fingerprint: consent.run for consent in state.consents().all()}
    _take_all_back(state)
    state.ask_to_leave()
    with _alone(state):
        _take_all_back(state)  # a policy may have accepted an offer until the process ended
        try:
            told = _told(state, membership, proxies)
        finally:  # a host that answers for ever holds nobody: an interrupt ends the waiting alone
            state.leave()
    lines = [f"{membership.name} ({membership.member}) has left {membership.url}{told}"]
    lines += [
        "nothing leaves from now on; what was released stays released, and the ledger stays",
        *_memory(membership, names, home),
    ]
    return "\n".join(lines)


def _take_all_back(state: MemberState) -> None:
    with state.answering() as consents:
        for consent in consents.all():
            if consent.holds:
                consents.withdraw(consent.run)


def watch(state: MemberState, stop: threading.Event) -> None:
    """Set `stop` once `tacit leave` asks for it, from a thread of its own."""

    def wait() -> None:
        while not state.is_left:
            if stop.wait(_TICK):
                return
        stop.set()

    threading.Thread(target=wait, name="leaving", daemon=True).start()


@contextmanager
def _alone(state: MemberState) -> Iterator[None]:
    """Be the one process that works here, after the end of the other one. Raises ConfigError."""
    deadline = time.monotonic() + _SECONDS
    pause = threading.Event()
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(state.locked())
                break
            except ConfigError as error:
                if time.monotonic() > deadline:
                    raise ConfigError(
                        f"--state {state.folder}: process {state.worker()} still works there; "
                        "nothing leaves any more; end it, then `tacit leave` again"
                    ) from error
            pause.wait(_TICK)
        yield


def _told(state: MemberState, membership: Membership, proxies: Proxies) -> str:
    """Tell the host; returns what to add where it could not be told."""
    try:
        with HostClient(
            membership.url, state.tls, proxies, public_web=membership.public_web
        ) as host:
            handing_over = HandingOver(host, state)
            for run in sorted({consent.run for consent in state.consents().all()}):
                handing_over.hand_over(run)
            host.leave()
    except (ConfigError, ServiceError) as error:
        return f"; the host was not told, and lists this member on: {error}"
    return ""


def _memory(membership: Membership, names: dict[str, str], home: Path) -> list[str]:
    if membership.published is not None:
        return [f"the ledgers of its parts of published data are in {membership.published}"]
    try:
        spent = run_spending.histories(membership.dataset, home)
    except PrivacyError as error:
        return [str(error)]
    return run_spending.memory_lines(membership.dataset, spent, names)
