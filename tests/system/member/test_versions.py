"""A host and a member of other versions: one minor apart they train, further one must be updated.

The tests that are not exhaustive run this tree's code under another version's name. A wheel that
was kept of an earlier or later version is tested as `TACIT_KEPT_WHEEL` names it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tacit_services.versions import minors_apart, own_version

from tests.helpers.federation import Host, Member, run_file
from tests.helpers.other_version import apart_by, is_of, under_name, unpacked, wheel
from tests.helpers.servers import PATIENCE
from tests.system.federation.test_federation import BY_POLICY

KEPT = os.environ.get("TACIT_KEPT_WHEEL", "")
WORKS = "one minor apart works"


@contextmanager
def serving(folder: Path) -> Iterator[Host]:
    """Serve by this tree, with a run that begins with the first member."""
    host = Host(folder / "host")
    try:
        host.serve()
        run = run_file(folder, count=1, updates=20_000, epsilon=4.0)
        host.tacit("submit", run, "--name", "long", "--federation", host.place)
        yield host
    finally:
        host.stop()


@contextmanager
def member(folder: Path, variables: dict[str, str]) -> Iterator[Member]:
    site = Member(folder, 0, "Site 0", variables=variables)
    try:
        yield site
    finally:
        site.stop()


def train(host: Host, site: Member) -> None:
    """Wait for an update that is accepted from now on, and check that each counts once."""
    before = host.runs()["long"]["applied"]
    host.wait_run("long", lambda stands: stands["applied"] > before + 5)
    pushes = host.accepted("long")
    assert len(set(pushes)) == len(pushes) <= site.charges()


def test_a_member_two_minor_versions_off_waits_and_goes_on_when_it_was_updated(
    tmp_path: Path,
) -> None:
    near, far = (
        under_name(tmp_path / "near", apart_by(1)),
        under_name(tmp_path / "far", apart_by(2)),
    )
    assert is_of(far, sys.executable)[0] == apart_by(2)
    with serving(tmp_path) as host, member(tmp_path / "site", far) as site:
        # Given: a machine that is too far does not become a member, and its line is still good
        refused = site.tried(
            *host.join_words(), "--data", site.rows, "--state", site.state, patience=PATIENCE
        )
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert f"update the host; {WORKS}" in refused.stderr
        # When: one minor version apart
        site.variables = near
        site.join(host, BY_POLICY)
        train(host, site)
        # When: it is updated too far
        site.kill()
        spent = site.charges()
        site.variables = far
        site.start_again()
        # Then: one line on both sides; it stays, and nothing is spent
        line = f"update the host; {WORKS}"
        site.wait_for_text("join.log", line)
        host.wait_for_text("serve.log", line)
        assert site.text("join.log").count(WORKS) == 1
        assert host.text("serve.log").count(WORKS) == 1
        assert site.joined is not None
        assert site.joined.poll() is None
        assert site.spent_nothing_since(spent)
        # When: it is as it was
        site.kill()
        site.variables = near
        site.start_again()
        train(host, site)


@pytest.mark.exhaustive
@pytest.mark.parametrize("apart", [-1, 1])
def test_a_members_wheel_of_the_minor_version_before_or_after_trains(
    tmp_path: Path, apart: int
) -> None:
    version = apart_by(apart)
    variables = unpacked(wheel(tmp_path / "wheel", version), tmp_path / "installed")
    assert is_of(variables, sys.executable) == (
        version,
        str(tmp_path / "installed" / "tacit_services"),
    )
    with serving(tmp_path) as host, member(tmp_path / "site", variables) as site:
        site.join(host, BY_POLICY)
        train(host, site)
        assert version in host.tacit("members", "--federation", host.place)


@pytest.mark.exhaustive
@pytest.mark.skipif(not KEPT, reason="no wheel was kept: TACIT_KEPT_WHEEL names one")
def test_a_kept_wheel_trains_or_says_which_must_move(tmp_path: Path) -> None:
    variables = unpacked(Path(KEPT), tmp_path / "installed")
    version, _ = is_of(variables, sys.executable)
    apart = minors_apart(own_version(), version)
    assert apart is not None
    with serving(tmp_path) as host, member(tmp_path / "site", variables) as site:
        site.join(host, BY_POLICY)
        if abs(apart) <= 1:
            train(host, site)
        else:
            site.wait_for_text("join.log", WORKS)
