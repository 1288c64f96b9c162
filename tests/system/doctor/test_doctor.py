"""`tacit doctor` names each of twelve faults, beside a real host and a real member."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from tacit_services.doctor.diagnosis import Diagnosis, Wellness
from tacit_services.doctor.host_route import HostRoute
from tacit_services.doctor.member_doctor import MemberDoctor
from tacit_services.enrollment import certificates
from tacit_services.identity import dealt_ledgers
from tacit_services.member.member_state import MemberState
from tacit_services.transport.proxy import Proxies

from tests.helpers.federation import Host, Member, federation, run_file
from tests.helpers.opening_proxy import opening_proxy
from tests.helpers.servers import HOST, PATIENCE, free_port
from tests.helpers.squid import squid


@dataclass(frozen=True)
class Place:
    """A host that serves, and a member whose process has ended after a run."""

    host: Host
    member: Member

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.host.port}"

    def copy(self, to: Path) -> Path:
        """Return a copy of the member's state, to spoil."""
        return Path(shutil.copytree(self.member.state, to / "state"))

    def diagnoses(
        self, state: Path | None, url: str = "", pin: str | None = None, **changed: Any
    ) -> dict[str, Diagnosis]:
        """Look, with another clock or version of this machine; returns each by what it is of."""
        route = HostRoute(url or self.url, Proxies.of_environment(os.environ))
        member = None if state is None else MemberState(state)
        looks = MemberDoctor(route, member, pin, **changed)
        return {diagnosis.what: diagnosis for diagnosis in looks.diagnoses()}


@pytest.fixture(autouse=True)
def home(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the ledgers of the member."""
    monkeypatch.setenv("XDG_DATA_HOME", str(place.member.folder / "home"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with federation(tmp_path_factory.mktemp("clinic"), members=1) as (host, (member,)):
        member.join(host)
        run = run_file(host.folder, count=1, updates=10)
        host.wait(lambda: "waits for offers" in member.text("join.log"))
        host.tacit("submit", run, "--federation", host.place)
        host.wait_run("run", lambda shown: shown["state"] == "ended")
        member.stop()
        yield Place(host, member)


def ill(diagnoses: dict[str, Diagnosis]) -> list[str]:
    return [what for what, diagnosis in diagnoses.items() if diagnosis.is_ill]


def test_a_member_and_a_host_that_are_well_are_told_so(place: Place) -> None:
    printed = json.loads(place.member.tacit("doctor", "--state", place.member.state, "--json"))
    looked = "name port clock tls certificate version broker memory disk ledger rows"
    assert [line["what"] for line in printed] == looked.split()
    assert {line["state"] for line in printed} == {Wellness.WELL}
    printed = json.loads(place.host.tacit("doctor", "--federation", place.host.place, "--json"))
    assert {line["state"] for line in printed} == {Wellness.WELL}
    assert {"port", "runs", "broker", "certificate", "disk"} <= {line["what"] for line in printed}


def test_a_machine_that_is_no_member_yet_is_told_by_what_the_host_is_known(place: Place) -> None:
    pin = place.host.join_words()[-1]
    assert pin in place.diagnoses(None)["tls"].words
    assert not ill(place.diagnoses(None, pin=pin))
    other = place.diagnoses(None, pin="sha256:" + "0" * 64)
    assert ill(other) == ["tls"]
    assert "own line" in other["tls"].advice


def test_it_spends_nothing_and_says_lines_for_people(place: Place) -> None:
    ledgers = sorted((place.member.folder / "home").rglob("*.db"))
    before = [path.read_bytes() for path in ledgers]
    lines = place.member.tacit("doctor", "--state", place.member.state).splitlines()
    assert ledgers
    assert [path.read_bytes() for path in ledgers] == before
    assert lines[0].split() == ["name", "ok", HOST, "is", HOST]


def test_a_name_that_nobody_knows(place: Place) -> None:
    diagnoses = place.diagnoses(None, url=f"https://host.invalid:{place.host.port}")
    assert ill(diagnoses) == ["name"]
    assert diagnoses["port"].words == "not looked at, because of name"


def test_a_name_that_the_hosts_certificate_has_not(place: Place) -> None:
    diagnoses = place.diagnoses(None, url=f"https://127.1:{place.host.port}")  # the same machine
    assert ill(diagnoses) == ["tls"]
    assert "not for 127.1" in diagnoses["tls"].words
    assert "federation.toml" in diagnoses["tls"].advice


def test_a_closed_port(place: Place) -> None:
    diagnoses = place.diagnoses(None, url=f"https://{HOST}:{free_port()}")
    assert ill(diagnoses) == ["port"]
    assert "nothing listens" in diagnoses["port"].words


def test_a_proxy_that_refuses_to_connect(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with squid(ports="443") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
        diagnoses = place.diagnoses(place.member.state)
    assert ill(diagnoses) == ["proxy"]
    assert "refuses to connect" in diagnoses["proxy"].words


def test_a_proxy_that_takes_tls_apart(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opening_proxy(tmp_path) as url:
        monkeypatch.setenv("HTTPS_PROXY", url)
        diagnoses = place.diagnoses(place.member.state)
        assert ill(diagnoses) == ["tls"]
        assert "Inspection" in diagnoses["tls"].words


def test_a_clock_that_is_a_day_off(place: Place) -> None:
    day = timedelta(days=1).total_seconds()
    diagnoses = place.diagnoses(place.member.state, now=lambda: time.time() - day)
    assert diagnoses["clock"].is_ill
    assert "behind the host's" in diagnoses["clock"].words
    assert diagnoses["broker"].wellness == Wellness.SKIPPED


def test_a_certificate_that_has_ended(place: Place, tmp_path: Path) -> None:
    state = place.copy(tmp_path)
    (state / "tls.crt").write_bytes(_ended(place, state))
    diagnoses = place.diagnoses(state)
    assert ill(diagnoses) == ["certificate"]
    assert "has ended" in diagnoses["certificate"].words


def test_a_certificate_that_was_revoked(place: Place, tmp_path: Path) -> None:
    other = Member(tmp_path / "other", 5, "Other")
    try:
        other.join(place.host)
        place.host.wait(lambda: "waits for offers" in other.text("join.log"))
    finally:
        other.stop()
    place.host.tacit("members", "revoke", "Other", "--federation", place.host.place)
    diagnoses = place.diagnoses(other.state)
    assert ill(diagnoses) == ["certificate"]
    assert "was revoked" in diagnoses["certificate"].words


def test_a_full_disk(place: Place, tmp_path: Path) -> None:
    with _small_disk(tmp_path / "small") as small:
        shutil.copytree(place.member.state, small, dirs_exist_ok=True)
        diagnoses = place.diagnoses(small)
    assert ill(diagnoses) == ["disk"]


def test_a_column_that_the_rows_have_not(place: Place, tmp_path: Path) -> None:
    rows = place.member.rows.read_text()
    try:
        place.member.rows.write_text(rows.replace("a,b,y", "a,c,y"))
        diagnoses = place.diagnoses(place.member.state)
    finally:
        place.member.rows.write_text(rows)
    assert ill(diagnoses) == ["rows"]
    assert "has no column 'b'" in diagnoses["rows"].words


def test_a_version_that_is_too_old(place: Place) -> None:
    diagnoses = place.diagnoses(place.member.state, version="0.0.1")
    assert diagnoses["version"].is_ill
    assert "update the member; one minor apart works" in diagnoses["version"].words
    assert diagnoses["broker"].wellness == Wellness.SKIPPED
    newer = place.diagnoses(place.member.state, version="99.0.0")["version"]
    assert "update the host; one minor apart works" in newer.words


def test_a_ledger_that_another_program_holds(place: Place) -> None:
    (lock,) = (place.member.folder / "home").rglob(dealt_ledgers.RUN)
    with lock.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        diagnoses = place.diagnoses(place.member.state)
    assert ill(diagnoses) == ["ledger"]
    assert "another program" in diagnoses["ledger"].words


def test_a_broker_that_does_not_answer(place: Place) -> None:
    serving = place.host.serving
    assert serving is not None
    children = psutil.Process(serving.pid).children(recursive=True)
    (broker,) = (child for child in children if child.name() == "mosquitto")
    broker.send_signal(signal.SIGSTOP)
    try:
        diagnoses = place.diagnoses(place.member.state)
        printed = place.host.tried("doctor", "--federation", place.host.place, "--json")
    finally:
        broker.send_signal(signal.SIGCONT)
    assert ill(diagnoses) == ["broker"]
    assert printed.returncode == 1
    stand = {line["what"]: line["state"] for line in json.loads(printed.stdout)}
    assert [what for what, wellness in stand.items() if wellness == Wellness.ILL] == ["broker"]


def test_neither_host_nor_member_is_one_line(place: Place, tmp_path: Path) -> None:
    done = place.host.tried("doctor")
    assert done.returncode == 2
    assert "no membership" in done.stderr
    assert place.host.tried("doctor", "--federation", tmp_path).returncode == 2
    assert place.host.tried("doctor", place.url, "--federation", place.host.place).returncode == 2


def _ended(place: Place, state: Path) -> bytes:
    """Return the member's certificate, signed by the authority for a day that is over."""
    folder = place.host.place / "ca"
    authority_key = certificates.read_key((folder / "ca.key").read_bytes())
    own = x509.load_pem_x509_certificate((state / "tls.crt").read_bytes())
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(own.subject)
        .issuer_name(own.issuer)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=3))
        .not_valid_after(now - timedelta(days=1))
    )
    for extension in own.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    return certificates.pem(builder.sign(authority_key, hashes.SHA256()))


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    """Yield a folder on a disk of 32 MiB. Skip the test where none may be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)]
    if subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=PATIENCE)
