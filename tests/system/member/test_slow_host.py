"""A member whose host answers byte by byte ends when it is told to."""

from __future__ import annotations

import signal
import ssl
import subprocess
from pathlib import Path

from tacit_services.disk import files
from tacit_services.enrollment import certificates
from tacit_services.member.member_state import Membership, MemberState

from tests.helpers.federation import TACIT
from tests.helpers.processes import environment
from tests.helpers.servers import HOST, PATIENCE
from tests.helpers.slow_server import slow_server

_SECONDS = 15.0  # the answer takes 120 s


def test_a_member_ends_when_it_is_told_to_though_its_host_answers_byte_by_byte(
    tmp_path: Path,
) -> None:
    key = certificates.new_key()
    authority = certificates.authority(key, "authority")
    certificate = certificates.sign(authority, key, "host", key.public_key(), 30, (HOST,))
    (tmp_path / "host.pem").write_bytes(certificates.pem(certificate) + certificates.key_pem(key))
    (tmp_path / "rows.csv").write_text("a,y\n1,2\n")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "host.pem")
    with slow_server("headers", tls, pieces=1_200) as server:
        url = f"https://{HOST}:{server.port}"
        state = MemberState(tmp_path / "state")
        own = certificates.sign(authority, key, "edge-0", key.public_key(), 60)
        for path, content in (
            (state.tls.ca, certificates.pem(authority)),
            (state.tls.cert, certificates.pem(own)),
            (state.tls.key, certificates.key_pem(key)),
        ):
            files.write(path, content, files.SECRET)
        state.keep(Membership(url, "edge-0", "Site", str(tmp_path / "rows.csv"), "rows"))
        with (tmp_path / "log").open("wb") as log:
            joined = subprocess.Popen(
                [*TACIT, "join", url, "--state", str(state.folder)],
                env=environment(XDG_DATA_HOME=str(tmp_path / "home")), cwd=tmp_path,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            assert server.requested.wait(PATIENCE), (tmp_path / "log").read_text()
            joined.send_signal(signal.SIGTERM)
            assert joined.wait(_SECONDS) == 0
        finally:
            joined.kill()
            joined.wait(PATIENCE)
    assert "trying again" not in (tmp_path / "log").read_text()
