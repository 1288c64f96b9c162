"""A federation in an organisation that has a certificate authority, and a broker, of its own."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from tests.helpers.federation import Host, Member, endless_run
from tests.helpers.organisation_ca import OrganisationCa
from tests.helpers.servers import HOST, PATIENCE, Mosquitto, free_port, need

BY_POLICY = 'accept = "within"\nlifetime_epsilon = 8.0'
DOCUMENT = Path(__file__).parents[3] / "docs" / "federation.md"


class OwnBroker:
    """A mosquitto as docs/federation.md configures it, and its administrator."""

    def __init__(self, folder: Path, host: Host, chain: Path, key: Path, port: int) -> None:
        """folder: which mosquitto reads. chain, key: its certificate."""
        folder.mkdir()
        self._folder = folder
        self._host = host
        shutil.copy(chain, folder / "broker.pem")
        shutil.copy(key, folder / "broker.key")
        text = documented("# /etc/mosquitto/conf.d/tacit.conf")
        text = text.replace("/etc/mosquitto/tacit", str(folder))
        text = text.replace("listener 8883", f"listener {port} {HOST}")
        conf = folder / "mosquitto.conf"
        conf.write_text(text + ("user root\n" if os.geteuid() == 0 else ""))
        command = [need("mosquitto"), "-c", str(conf)]
        self.server = Mosquitto(command, port, folder / "mosquitto.log")
        self._end = threading.Event()
        self._administrator = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._bring()
        self.server.start()
        self._administrator.start()

    def stop(self) -> None:
        self._end.set()
        if self._administrator.is_alive():
            self._administrator.join()
        self.server.stop()

    def rules(self) -> str:
        """Return the rules that it was told to read."""
        return (self._folder / "acl").read_text()

    def _bring(self) -> bool:
        """Bring what has changed there; returns whether anything has."""
        changed = False
        for name in ("ca/ca.crt", "ca/crl.pem", "broker/acl"):
            source, copy = self._host.place / name, self._folder / Path(name).name
            content = source.read_bytes()
            if not copy.exists() or copy.read_bytes() != content:
                copy.write_bytes(content)
                changed = True
        return changed

    def _watch(self) -> None:
        while not self._end.wait(0.1):
            if self._bring():
                os.kill(self.server.pid, signal.SIGHUP)


def documented(beginning: str) -> str:
    """Return the block of the document that begins so."""
    (block,) = re.findall(rf"```\n({re.escape(beginning)}.*?)```", DOCUMENT.read_text(), re.DOTALL)
    return str(block)


def serve_words(organisation: OrganisationCa, broker: str) -> list[str]:
    """Return what the document gives `tacit serve` besides the folder, with files that exist."""
    chain, key = organisation.server("fed", [HOST])
    words = shlex.split(documented("tacit serve clinic --host fed.example.org").replace("\\\n", ""))
    files: dict[str, str | Path] = {"fed.example.org": HOST, "broker.example.org:8883": broker}
    files |= {"fed.pem": chain, "fed.key": key, "root.pem": organisation.root_file}
    assert words[:3] == ["tacit", "serve", "clinic"]
    assert set(files) < set(words)
    return [str(files.get(word, word)) for word in words[3:]]


def shown_at(address: str, ca: Path) -> x509.Certificate:
    """Return the certificate that HTTPS shows there, believed by this root alone."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=str(ca))
    with (
        socket.create_connection((host, int(port)), PATIENCE) as raw,
        context.wrap_socket(raw, server_hostname=host) as link,
    ):
        content = link.getpeercert(binary_form=True)
    assert content is not None
    return x509.load_der_x509_certificate(content)


@pytest.fixture
def organisation(tmp_path: Path) -> OrganisationCa:
    return OrganisationCa(tmp_path / "organisation")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path / "host")
    try:
        yield host
    finally:
        host.stop()


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[list[Member]]:
    sites = [Member(tmp_path / f"site{n}", n, f"Site {n}") for n in range(2)]
    try:
        yield sites
    finally:
        for site in sites:
            site.stop()


@pytest.fixture
def broker(tmp_path: Path, host: Host, organisation: OrganisationCa) -> Iterator[OwnBroker]:
    chain, key = organisation.server("broker", ["localhost", HOST])
    broker = OwnBroker(tmp_path / "mosquitto", host, chain, key, free_port())
    try:
        yield broker
    finally:
        broker.stop()


@pytest.mark.exhaustive
def test_members_train_by_certificates_and_a_broker_of_the_organisation(
    tmp_path: Path, organisation: OrganisationCa, host: Host, sites: list[Member], broker: OwnBroker
) -> None:
    # Given: a member of before, and then all as the document says
    host.serve()
    sites[0].join(host, BY_POLICY)
    host.wait(lambda: sites[0].has_joined)
    sites[0].kill()
    host.kill()
    host.serve(*serve_words(organisation, f"localhost:{broker.server.port}"))
    assert f"broker=localhost:{broker.server.port}: " in host.text("serve.log")  # is not there yet
    broker.start()
    certificate = shown_at(host.address, organisation.root_file)
    assert certificate.issuer == organisation.intermediate.subject
    # When
    for site in sites:
        site.join(host, BY_POLICY)
    host.wait(lambda: "again, as edge-0 as before" in sites[0].text("join.log"))
    run = endless_run(tmp_path)
    invited = host.tacit(
        "members", "invite", "ada", "--role", "researcher", "--federation", host.place
    )
    token = tmp_path / "ada.token"
    token.write_text(invited.split()[-1])
    url = f"https://{host.address}"
    reach = ("--url", url, "--token-file", token)
    sites[0].tacit("submit", run, "--name", "first", *reach)
    host.wait_run("first", lambda stands: stands["applied"] > 10)
    assert "not taken" not in host.text("serve.log")
    # Then: doctors find nothing
    said = host.tacit("doctor", "--federation", host.place)
    assert "broker       ok" in said
    assert re.search(r"certificate +ok +fed.pem for 127.0.0.1", said)
    assert "broker       ok" in sites[0].tacit("doctor", "--state", sites[0].state)
    # When: one is revoked
    host.tacit("members", "revoke", sites[1].name, "--federation", host.place)
    host.wait(lambda: sites[1].identity not in broker.rules())
    # Then: what it says is not heard, and the other trains
    accepted = len(host.journalled("first"))
    host.wait(lambda: len(host.accepted("first", accepted)) > 20)
    late = [edge for edge, _ in host.accepted("first", accepted + 5)]
    assert set(late) == {sites[0].identity}


def test_a_certificate_that_is_of_no_use_ends_the_start_in_one_line(
    organisation: OrganisationCa, host: Host
) -> None:
    chain, _ = organisation.server("fed", [HOST])
    _, other = organisation.server("other", [HOST])
    tried = host.tried("serve", host.place, "--listen", host.address, "--certificate", chain,
                       "--key", other)  # fmt: skip
    assert (tried.returncode, tried.stdout) == (2, "")
    assert re.fullmatch(r"tacit: certificate=.*fed.pem.*other.key.*\n", tried.stderr)
