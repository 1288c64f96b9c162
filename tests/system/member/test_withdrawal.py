"""Withdrawal, while the member's own process cannot act on it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.helpers.federation import endless_run, federation
from tests.system.federation.test_federation import BY_POLICY


@pytest.mark.exhaustive
def test_a_withdrawal_holds_while_the_member_hangs(tmp_path: Path) -> None:
    with federation(tmp_path, members=2) as (host, sites):
        for site in sites:
            site.join(host, BY_POLICY)
        run = endless_run(tmp_path)
        host.tacit("submit", run, "--name", "long", "--federation", host.place)
        host.wait_run("long", lambda stands: stands["applied"] > 10)
        hanging = sites[0].joined
        assert hanging is not None
        hanging.send_signal(signal.SIGSTOP)
        try:
            told = sites[0].tacit("offers", "withdraw", "long", "--state", sites[0].state)
            assert "nothing leaves from now on" in told
            spent = sites[0].charges()
            before = host.runs()["long"]["applied"]
            host.wait_run("long", lambda stands: stands["applied"] > before + 20)
            assert sites[0].spent_nothing_since(spent)
        finally:
            hanging.send_signal(signal.SIGCONT)
        host.wait_run(
            "long", lambda stands: {"member": "Site 0", "reason": "withdrawn"} in stands["refused"]
        )
