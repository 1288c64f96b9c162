"""The broker of a federation on a machine without mosquitto: amqtt, with the same rules.

Run as a program, it is that broker. Its plugins look at the kept rules at every message, so a rule
holds as soon as it is on disk. It is about ten times slower than mosquitto.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from amqtt.broker import Broker
from amqtt.contexts import Action, BaseContext
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin
from amqtt.session import Session
from cryptography import x509

from tacit.protocol import topics
from tacit_services.children.fallback_broker import served
from tacit_services.enrollment import certificates
from tacit_services.enrollment.acl import (
    BROKER,
    Rights,
    aggregator_name,
    aggregator_rights,
    edge_rights,
)
from tacit_services.enrollment.authority import CA, CERTIFICATE, KEY, REVOKED
from tacit_services.federation.kept_rules import HOST, KeptRules
from tacit_services.transport.mqtt import covers

_MODULE = "tacit_services.federation.fallback_rules"


class CertifiedOnly(BaseAuthPlugin):  # type: ignore[misc]
    """Lets in who has shown a certificate of the federation's authority that is not revoked."""

    @dataclass
    class Config:
        """revoked: the file with the list of revoked certificates."""

        revoked: str

    async def authenticate(self, *, session: Session) -> bool | None:
        """Return whether the session's client gets in; its certificate's name is its user."""
        certificate = _shown(session.ssl_object)
        if certificate is None or _is_revoked(certificate, Path(self.config.revoked)):
            return False
        session.username = certificates.common_name(certificate)
        return True


class KeptRulesOnly(BaseTopicPlugin):  # type: ignore[misc]
    """Lets pass what the kept rules name."""

    @dataclass
    class Config:
        """folder: of the kept rules."""

        folder: str

    def __init__(self, context: BaseContext) -> None:
        super().__init__(context)
        self._kept = KeptRules(Path(self.config.folder))

    async def topic_filtering(
        self,
        *,
        session: Session | None = None,
        topic: str | None = None,
        action: Action | None = None,
    ) -> bool | None:
        """Return whether a session may publish, receive or subscribe to a topic."""
        certificate = _shown(None if session is None else session.ssl_object)
        if certificate is None or topic is None:
            return False
        everything = _rights(self._kept.runs(), certificates.common_name(certificate))
        return any(_allows(rights, topic, action) for rights in everything)


def _shown(tls: ssl.SSLObject | None) -> x509.Certificate | None:
    der = None if tls is None else tls.getpeercert(binary_form=True)
    return None if der is None else x509.load_der_x509_certificate(der)


def _is_revoked(certificate: x509.Certificate, path: Path) -> bool:
    listed = x509.load_pem_x509_crl(path.read_bytes())
    return listed.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None


def _rights(runs: Mapping[str, Sequence[str]], user: str) -> Iterable[Rights]:
    if user == BROKER:
        yield Rights(BROKER, [topics.health()])
    for run, members in runs.items():
        if user == aggregator_name(run):
            yield aggregator_rights([run], user)
        elif user in members and user != HOST:
            yield edge_rights([run], user)


def _allows(rights: Rights, topic: str, action: Action | None) -> bool:
    if action is Action.PUBLISH:
        return _covered(rights.write, topic)
    if action is Action.RECEIVE:
        return _covered(rights.read, topic)
    if topic in (*rights.read, *rights.asks):
        return True
    return rights.parts and "#" not in topic and _covered(rights.read, topic)


def _covered(filters: Iterable[str], topic: str) -> bool:
    return any(covers(each, topic) for each in filters)


def _settings(folder: str, bundle: Path, port: str) -> dict[str, object]:
    listener = {
        "type": "tcp",
        "bind": f"127.0.0.1:{port}",
        "max_connections": 1000,
        "ssl": True,
        "cafile": str(bundle / CA),
        "certfile": str(bundle / CERTIFICATE),
        "keyfile": str(bundle / KEY),
    }
    plugins = {
        f"{_MODULE}.CertifiedOnly": {"revoked": str(bundle / REVOKED)},
        f"{_MODULE}.KeptRulesOnly": {"folder": folder},
    }
    return {"listeners": {"default": listener}, "plugins": plugins}


def main(folder: str, bundle: str, port: str) -> None:
    """Be the broker until SIGTERM or SIGINT."""

    async def serve() -> None:
        await served(Broker(_settings(folder, Path(bundle), port)))

    asyncio.run(serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
