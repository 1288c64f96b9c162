"""A member's certificate: renewed while runs train, and joined anew once it has ended."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.helpers.federation import federation, run_file
from tests.helpers.servers import wait_for

SECONDS = 24.0  # for which a certificate of this federation is valid
POLICY = 'accept = "within"'
DAYS = str(SECONDS / 86_400)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_training_goes_on_over_renewals_and_a_member_that_slept_joins_again(tmp_path: Path) -> None:
    with federation(tmp_path, members=1) as (host, (site,)):
        host.kill()
        host.serve("--log", "info", "--certificate-days", DAYS)
        site.join(host, POLICY)
        run = run_file(tmp_path, updates=100_000, epsilon=60.0, count=1)
        host.tacit("submit", run, "--name", "long", "--federation", host.place)
        host.wait_run("long", lambda stands: stands["applied"] > 10)
        # Given: certificates that end one after the other, and connections that are made anew
        for _ in range(2):
            end = site.certificate_ends()
            host.wait(lambda end=end: time.time() > end)  # type: ignore[misc]
            assert site.certificate_ends() > end
            os.kill(host.broker_pid(), signal.SIGKILL)
            before = host.runs()["long"]["applied"]
            host.wait_run("long", lambda stands, before=before: stands["applied"] > before + 10)  # type: ignore[misc]
        # Then: nothing is lost or doubled
        host.tacit("stop", "long", "--federation", host.place)
        stands = host.wait_run("long", lambda stands: stands["state"] == "stopped")
        pushes = host.accepted("long")
        assert len(set(pushes)) == len(pushes) == stands["applied"]
        assert site.text("join.log").count("the certificate was renewed") >= 2
        # When: the member sleeps for longer than its certificate lasts
        spent = site.charges()
        assert spent >= stands["applied"]
        site.kill()
        wait_for(lambda: time.time() > site.certificate_ends(), 2 * SECONDS)
        words = ("join", host.join_words()[1], "--state", site.state)
        told = site.tried(*words)
        # Then: one line says what to do, and by it the member is the one that it was
        assert told.returncode == 2
        assert "ask the host of" in told.stderr
        assert "for a new join line" in told.stderr
        site.join(host, POLICY)
        host.wait(lambda: "again, as edge-0 as before" in site.text("join.log"))
        run = run_file(tmp_path, updates=10, epsilon=60.0, count=1)
        host.tacit("submit", run, "--name", "next", "--federation", host.place)
        host.wait_run("next", lambda stands: stands["state"] == "ended")
        assert site.charges() >= spent + 10
