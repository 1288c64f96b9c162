"""When a member's certificate is renewed, and what is said once it has ended."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tacit_services.disk import files
from tacit_services.enrollment import certificates
from tacit_services.member.member_state import Membership, MemberState
from tacit_services.member.own_certificate import OwnCertificate

from tacit.errors import ConfigError
from tests.helpers.servers import HOST, free_port

DAY = 86_400.0


class Site:
    """A member whose certificate is of 30 days, and whose host is away."""

    def __init__(self, folder: Path) -> None:
        self.now = time.time()
        state = MemberState(folder)
        key = certificates.new_key()
        authority = certificates.authority(key, "authority")
        own = certificates.sign(authority, key, "edge-0", key.public_key(), 30)
        for path, content in (
            (state.tls.ca, certificates.pem(authority)),
            (state.tls.cert, certificates.pem(own)),
            (state.tls.key, certificates.key_pem(key)),
        ):
            files.write(path, content, files.SECRET)
        url = f"https://{HOST}:{free_port()}"
        membership = Membership(url, "edge-0", "St. Mary's", "rows.csv", "rows")
        self.certificate = OwnCertificate(state, membership, clock=lambda: self.now)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "state")


def test_nobody_is_asked_before_two_thirds_are_over(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.now += 19.9 * DAY
    assert not site.certificate.renew()
    assert caplog.text == ""
    site.now += 0.2 * DAY
    assert not site.certificate.renew()
    assert caplog.text.count("the certificate was not renewed") == 1


def test_a_host_that_is_away_is_asked_again_once_in_a_while(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.now += 21 * DAY
    for _ in range(10):
        site.certificate.renew()
        site.now += 600.0
    assert caplog.text.count("the certificate was not renewed") == 2


def test_one_that_has_ended_says_what_to_do(site: Site) -> None:
    site.certificate.check()
    site.now += 31 * DAY
    assert site.certificate.has_ended()
    with pytest.raises(ConfigError, match=r"St\. Mary's \(edge-0\) ended on .* new join line"):
        site.certificate.renew()


def test_what_is_no_certificate_is_refused_by_name(site: Site, tmp_path: Path) -> None:
    (tmp_path / "state" / "tls.crt").write_text("junk")
    with pytest.raises(ConfigError, match=r"tls\.crt: not a certificate"):
        site.certificate.renew()
