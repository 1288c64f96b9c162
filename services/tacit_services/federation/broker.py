"""The broker of a federation, behind the host's port: one mosquitto, or amqtt where there is none.

It asks for client certificates of the federation's authority, and takes the common name for the
user. What a user may write, read and subscribe to is in mosquitto's plugin for dynamic security,
whose file is made anew at every start from what BrokerRules has kept.
"""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tacit.errors import ServiceError
from tacit_services import python_child
from tacit_services.children.processes import (
    Child,
    StartedServer,
    broker_limits,
    free_port,
    mosquitto,
    start_and_wait,
)
from tacit_services.disk import files
from tacit_services.enrollment import certificates
from tacit_services.enrollment.acl import BROKER
from tacit_services.enrollment.authority import (
    CA,
    CERTIFICATE,
    KEY,
    RENEW_DAYS,
    REVOKED,
    CertificateAuthority,
)
from tacit_services.federation.broker_rules import BrokerRules
from tacit_services.federation.file_rules import FileRules
from tacit_services.federation.kept_rules import HOST, KeptRules
from tacit_services.transport.tls import Tls

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PLUGIN = "mosquitto_dynamic_security.so"
_FALLBACK = "tacit_services.federation.fallback_rules"
_PLUGIN_FILE = "dynamic-security.json"


class FederationBroker:
    """The broker of a federation, at a loopback port.

    Usage::

        broker = FederationBroker(folder / "broker", authority, ["fed.example.org"])
        address = broker.start(children).address
        rules = broker.rules()
    """

    def __init__(self, folder: Path, authority: CertificateAuthority, hosts: Sequence[str]) -> None:
        """Prepare it. Certificates of its own and of the host are made where there are none yet.

        folder: FOLDER/broker. hosts: names and addresses by which members reach the host's port.
        The broker's certificate is for these. Raises ConfigError.
        """
        self._folder = folder
        self._authority = authority
        self._kept = KeptRules(folder)
        self._address: str | None = None
        self._child: Child | None = None  # mosquitto
        folder.mkdir(parents=True, exist_ok=True)
        with authority.locked():
            self._bundle = certified(authority, BROKER, (*LOOPBACK, *hosts))
            self._own = certified(authority, HOST)

    def start(self, children: list[Child]) -> StartedServer:
        """Start it, and enter it among `children`; returns its address, for the front door.

        Started again after a kill -9, of it or of the host, it has the rules of before. Raises
        ServiceError where there is no broker to start, or it does not start.
        """
        binary = mosquitto()
        port = free_port()
        self._address = f"127.0.0.1:{port}"
        if binary is None:
            line = self._fallback(port)
            child = Child("broker", line, {}, self._folder / "broker.log", lasting=True)
            start_and_wait(child, port, children)
            return StartedServer("amqtt (no mosquitto on PATH)", self._address)
        conf = self._folder / "mosquitto.conf"
        files.write(conf, "\n".join([*self._lines(port, binary), ""]).encode(), files.SECRET)
        child = Child(
            "broker",
            [binary, "-c", str(conf)],
            {},
            self._folder / "broker.log",
            lasting=True,
            before=partial(self._kept.write_plugin_file, self._folder / _PLUGIN_FILE),
        )
        start_and_wait(child, port, children)
        self._child = child
        return StartedServer("mosquitto", self._address)

    def rules(self) -> BrokerRules | FileRules:
        """Return the rules of the started broker: mosquitto's over a connection of the host's own.

        Raises ServiceError where the broker does not answer.
        """
        assert self._address is not None, "not started"
        if self._child is None:
            return FileRules(self._kept)
        tls = Tls(self._own / CA, self._own / CERTIFICATE, self._own / KEY)
        return BrokerRules(self._kept, self._address, tls, self._reread)

    def _reread(self) -> None:
        """Let mosquitto read certificates and the list of revoked ones again."""
        if self._child is not None:
            self._child.signal(signal.SIGHUP)

    def _fallback(self, port: int) -> list[str]:
        """Return the command of the broker that is used without mosquitto. Raises ServiceError."""
        if importlib.util.find_spec("amqtt") is None:
            raise ServiceError(
                "broker: neither mosquitto (Debian: apt install mosquitto) nor amqtt "
                "(pip install 'tacit[run]') is there; install one, or name a broker with --broker"
            )
        return python_child.command(_FALLBACK, str(self._folder), str(self._bundle), str(port))

    def _lines(self, port: int, binary: str) -> list[str]:
        return [
            f"listener {port} 127.0.0.1",
            f"cafile {self._bundle / CA}",
            f"certfile {self._bundle / CERTIFICATE}",
            f"keyfile {self._bundle / KEY}",
            f"crlfile {self._bundle / REVOKED}",
            "tls_version tlsv1.2",
            "require_certificate true",
            "use_identity_as_username true",
            "allow_anonymous false",
            f"plugin {_plugin(binary)}",
            f"plugin_opt_config_file {self._folder / _PLUGIN_FILE}",
            *broker_limits(),
            # As in docker/mosquitto.conf, which says why.
            "max_queued_messages 1000",
            "max_queued_bytes 134217728",
            "max_keepalive 120",
            "persistence false",
            "log_type error",
            "log_type warning",
            "connection_messages false",
        ]


def certified(authority: CertificateAuthority, name: str, hosts: Sequence[str] = ()) -> Path:
    """Return the folder of `name` at the authority, with a certificate for these hosts.

    It is made, or renewed for the same key, where there is none, it ends soon, or is for others.
    Under the authority's lock. Raises ConfigError.
    """
    wanted = list(dict.fromkeys(hosts))
    bundle = authority.folder / name
    if not (bundle / KEY).exists():
        return authority.issue(name, wanted)
    issued = authority.issued(name)
    if (
        not issued
        or certificates.due(issued[-1], RENEW_DAYS)
        or certificates.hosts(issued[-1]) != wanted
    ):
        authority.renew(name, wanted)
    return bundle


def _plugin(binary: str) -> str:
    """Return where mosquitto's plugin is: its name alone where the loader is to find it."""
    prefix = Path(binary).resolve().parent.parent
    places = (*prefix.glob(f"lib/{_PLUGIN}"), *prefix.glob(f"lib/*/{_PLUGIN}"))
    return str(places[0]) if places else _PLUGIN
