"""A certificate that ends soon is named: in the log, by `tacit health`, and in the metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from tacit_services.aggregator.api.prometheus_metrics import registry
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.transport.mqtt import Connection
from tacit_services.transport.tls import Tls, near_end
from tacit_services.worker import heartbeat
from tacit_services.worker.heartbeat import Heartbeat, judged

from tacit.errors import ConfigError
from tests.helpers.rest import Rig
from tests.helpers.servers import HOST, wait_for

METRIC = "tacit_certificate_end_timestamp_seconds"


def issued(folder: Path, days: int) -> Tls:
    bundle = CertificateAuthority.create(folder / "pki").issue("edge-0", days=days)
    return Tls(bundle / "ca.crt", bundle / "tls.crt", bundle / "tls.key")


@pytest.mark.parametrize(("days", "warns"), [(12, True), (29, True), (40, False)])
def test_a_connection_and_the_health_file_name_the_days_that_are_left(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    days: int,
    warns: bool,
) -> None:
    monkeypatch.setattr(heartbeat, "PERIOD", 0.02)
    tls = issued(tmp_path, days)
    Connection(f"{HOST}:1", "edge-0", [], lambda inbound: None, tls=tls)
    assert (f"tls.crt ends in {days} days; renew it" in caplog.text) is warns
    heart = Heartbeat(tmp_path / "health")
    heart.certificate(tls.ends)
    heart.stands("online", "edge-0")
    if warns:
        expected = f"edge-0: online; its certificate ends in {days} days"
    else:
        expected = "edge-0: online"
    wait_for(lambda: judged(tmp_path / "health", 1e6, 1e6) == expected)
    heart.close()


def test_one_that_has_ended_is_called_so_and_what_is_none_is_refused(tmp_path: Path) -> None:
    assert near_end(0.0) == "has ended"
    tls = issued(tmp_path, 12)
    tls.cert.write_text("junk")
    with pytest.raises(ConfigError, match="not a certificate"):
        tls.ends()


def test_the_metrics_have_the_end_of_the_aggregators_own(tmp_path: Path) -> None:
    ends = issued(tmp_path, 12).ends()
    rig = Rig(tmp_path)
    assert registry(rig.run_status, ends).get_sample_value(METRIC) == ends
    assert registry(rig.run_status).get_sample_value(METRIC) is None
