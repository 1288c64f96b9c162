"""`tacit leave` with a host that is away, and beside a process that does not end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from tacit_services.disk import files
from tacit_services.enrollment import certificates
from tacit_services.member import leaving
from tacit_services.member.member_state import Membership, MemberState
from tacit_services.transport.proxy import DIRECT

from tacit.errors import ConfigError
from tests.helpers.raw_host import raw_host
from tests.helpers.servers import HOST, free_port, wait_for
from tests.unit.member.test_member_loop import offer


@pytest.fixture
def state(tmp_path: Path) -> MemberState:
    """Return the state of a member that has accepted a run, and whose host is away."""
    state = MemberState(tmp_path / "state")
    key = certificates.new_key()
    authority = certificates.pem(certificates.authority(key, "authority"))
    for path in (state.tls.ca, state.tls.cert):
        files.write(path, authority, files.SECRET)
    files.write(state.tls.key, certificates.key_pem(key), files.SECRET)
    url = f"https://{HOST}:{free_port()}"
    state.keep(Membership(url, "edge-3", "St. Mary's", "rows.csv", "rows.csv"))
    with state.answering() as consents:
        consents.record(offer("retina"), "accepted")
    return state


def test_a_member_leaves_though_its_host_is_away(state: MemberState, tmp_path: Path) -> None:
    told = leaving.leave(state, DIRECT, tmp_path / "home")
    assert "St. Mary's (edge-3) has left" in told
    assert "the host was not told, and lists this member on" in told
    assert "the ledger of rows.csv has no release" in told
    assert state.membership() is None
    assert not state.is_left
    assert not any(consent.holds for consent in state.consents().all())
    with pytest.raises(ConfigError, match="is of no member"):
        leaving.leave(state, DIRECT, tmp_path / "home")


def test_a_process_that_does_not_end_is_named_and_nothing_leaves_all_the_same(
    state: MemberState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "_SECONDS", 0.3)
    other = MemberState(state.folder)
    with (
        other.locked(),
        pytest.raises(ConfigError, match=rf"process {state.worker()} still works there"),
    ):
        leaving.leave(state, DIRECT, tmp_path / "home")
    assert not any(consent.holds for consent in state.consents().all())
    assert state.is_left
    leaving.leave(state, DIRECT, tmp_path / "home")
    assert state.membership() is None


def test_what_a_policy_accepts_until_the_process_ends_is_taken_back_too(
    state: MemberState, tmp_path: Path
) -> None:
    works, accepted = threading.Event(), threading.Event()

    def work() -> None:
        mine = MemberState(state.folder)
        with mine.locked():
            works.set()
            wait_for(lambda: mine.is_left)
            with mine.answering() as consents:
                consents.record(offer("lungs"), "accepted", by_policy=True)
            accepted.set()

    process = threading.Thread(target=work)
    process.start()
    works.wait()
    leaving.leave(state, DIRECT, tmp_path / "home")
    process.join()
    assert accepted.is_set()
    assert not any(consent.holds for consent in state.consents().all())


def test_a_host_that_answers_for_ever_holds_nobody(state: MemberState, tmp_path: Path) -> None:
    key = certificates.new_key()
    authority = certificates.authority(key, "authority")
    certificate = certificates.sign(authority, key, "edge-3", key.public_key(), 30)
    for path, content in (
        (state.tls.ca, certificates.pem(authority)),
        (state.tls.cert, certificates.pem(certificate)),
        (state.tls.key, certificates.key_pem(key)),
    ):
        files.write(path, content, files.SECRET)
    over = threading.Event()

    def slow(request: bytes) -> Iterable[bytes]:
        os.kill(os.getpid(), signal.SIGINT)  # its owner does not wait
        over.wait(60.0)
        return []

    with raw_host(tmp_path, authority, key, slow) as host:
        state.keep(Membership(host.url, "edge-3", "St. Mary's", "rows.csv", "rows.csv"))
        with pytest.raises(KeyboardInterrupt):
            leaving.leave(state, DIRECT, tmp_path / "home")
        over.set()
    assert state.membership() is None
