"""`tacit doctor` at a member, or at a machine that wants to be one. It spends nothing.

Each look is made once, from the nearest thing to the farthest. What lies behind something ill is
skipped, as it would be ill by the same cause.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator

from cryptography import x509

from tacit.errors import ConfigError, ServiceError, TacitError
from tacit.shown import printable
from tacit_services.doctor import machine
from tacit_services.doctor.diagnosis import Diagnosis, ill, near, skipped, well
from tacit_services.doctor.host_route import SECONDS, HostRoute
from tacit_services.doctor.rows_here import RowsHere
from tacit_services.enrollment import certificates
from tacit_services.member.believed import believed
from tacit_services.member.host_client import HostClient
from tacit_services.member.member_state import MemberState
from tacit_services.transport import pinned_authority
from tacit_services.transport.mqtt import ALPN, Connection, Inbound
from tacit_services.transport.pinned_authority import CLOCK, FederationAuthority
from tacit_services.transport.tls import Tls, near_end
from tacit_services.versions import own_version, who_must_move

HTTPS = "http/1.1"
_APART = "the way must pass TLS through unopened; ask who runs proxy or load balancer for that"
_OTHER = f"is the address, and sha256:…, of this federation's own line? if so, {_APART}"
_NEW_LINE = (
    "a new line is needed: ask the host's operator for it, and join by it with the same --state "
    f"(key, name and ledger stay). If nothing was changed at the host, {_APART}"
)
_ANEW = "ask the host's operator for a line, and join again: key, name and ledger stay"


class MemberDoctor:
    """The looks at one machine and its way to one host."""

    def __init__(
        self,
        route: HostRoute,
        state: MemberState | None,
        pin: str | None,
        *,
        now: Callable[[], float] = time.time,
        version: str | None = None,
    ) -> None:
        """state: of a member; None: this machine is none yet.

        pin: sha256:… of the join line, or None. now, version: this machine's clock, this tacit's.
        """
        self._route = route
        self._state = state
        self._pin = pin
        self._now = now
        self._version = own_version() if version is None else version
        self._authority: FederationAuthority | None = None
        self._ahead = now() - time.time()

    def diagnoses(self) -> Iterator[Diagnosis]:
        """Yield each diagnosis as it comes."""
        looks: dict[str, Callable[[], Diagnosis]] = {
            "name": self._route.name,
            "port": self._route.port_answers,
            "clock": self._clock,
            "tls": self._tls,
        }
        if self._state is not None:
            looks |= {
                "certificate": self._own_certificate,
                "version": self._host_version,
                "broker": self._broker,
            }
        cause = ""
        for what, look in looks.items():
            if cause:
                if what != cause:  # an earlier look has said it already
                    yield skipped(what, f"not looked at, because of {cause}")
                continue
            diagnosis = look()
            if diagnosis.is_ill:
                cause = diagnosis.what
            yield diagnosis
        yield machine.memory()
        if self._state is not None:
            yield machine.disk(self._state.folder)
            yield from RowsHere(self._state).diagnoses()

    def _clock(self) -> Diagnosis:
        """Ask the host for its time and its authority, which `_tls` looks at.

        A member believes what its own line has said: the host must show the same.
        """
        try:
            document = pinned_authority.document_at(self._route.url, self._route.proxies)
            authority = pinned_authority.read(document.content)
        except TacitError as error:
            return self._no_host(error)
        if document.clock_apart is not None:
            apart = document.clock_apart + self._ahead
            if abs(apart) > CLOCK:
                return ill("clock", pinned_authority.clocks(apart), "")
        if self._pin is not None and self._pin != document.pin:
            return ill("tls", f"the host shows {document.pin}, and not {self._pin[:80]}", _OTHER)
        if self._state is not None:
            try:
                authority = self._believed(self._state)
            except ConfigError as error:
                return ill("tls", str(error), _ANEW)
            if authority.pin() != document.pin:
                words = f"the host shows {document.pin}; this member believes {authority.pin()}"
                return ill("tls", words, _NEW_LINE)
        self._authority = authority
        return well("clock", "agrees with the host's")

    def _believed(self, state: MemberState) -> FederationAuthority:
        """Return whom the member believes, not whom the host names. Raises ConfigError."""
        membership = state.membership()
        assert membership is not None
        return believed(state, membership)

    def _no_host(self, error: TacitError) -> Diagnosis:
        """Return why a server that answers is not asked as a federation's host."""
        try:
            certificate = self._route.certificate(HTTPS)
        except OSError as reason:
            return ill("tls", f"{self._route.address}: {reason}", _APART)
        if self._state is not None and self._is_foreign(self._state, certificate):
            return _taken_apart("", certificate)
        names = certificates.hosts(certificate)
        if self._route.host not in names:
            return self._other_name(names)
        return ill("host", str(error), "is the address that of `tacit serve`?")

    def _other_name(self, names: list[str]) -> Diagnosis:
        return ill(
            "tls",
            f"the host's certificate is for {printable(', '.join(names), 200)}, "
            f"not for {self._route.host}",
            "use one of these, or name this one in the host's federation.toml (hosts)",
        )

    def _tls(self) -> Diagnosis:
        """Look whether the server's certificate is of the federation, and for this name."""
        assert self._authority is not None
        if self._authority.public_web:
            return self._public_certificate()
        try:
            certificate = self._route.certificate(HTTPS)
        except OSError as error:
            return ill("tls", f"{self._route.address}: {error}", _APART)
        if not self._is_ours(certificate):
            return _taken_apart("", certificate)
        names = certificates.hosts(certificate)
        if self._route.host not in names:
            return self._other_name(names)
        if certificate.not_valid_after_utc.timestamp() < self._now():
            return ill(
                "tls", "the host's certificate has ended", "its operator starts `tacit serve` anew"
            )
        pin = "" if self._pin or self._state else f"; compare {self._authority.pin()} with the line"
        return well("tls", f"the federation's own, for {self._route.host}{pin}")

    def _public_certificate(self) -> Diagnosis:
        """Look whether the system believes the server's certificate."""
        assert self._authority is not None
        try:
            self._route.shown_to(self._authority.context(), HTTPS)
        except ssl.SSLCertVerificationError as error:
            return ill("tls", f"{self._route.host}: {error.verify_message}", _APART)
        except OSError as error:
            return ill("tls", f"{self._route.address}: {error}", _APART)
        return well("tls", f"one that the system believes, for {self._route.host}")

    def _is_ours(self, certificate: x509.Certificate) -> bool:
        """Return whether the federation's authority, as this machine knows it, has signed it."""
        authority = self._authority
        if self._state is not None:
            authority = self._believed(self._state)
        assert authority is not None
        return certificates.is_issued_by(certificate, authority.ca.encode("ascii"))

    def _is_believed(self, tls: Tls) -> bool:
        """Return whether the broker has a certificate of an organisation that the host names."""
        try:
            self._route.shown_to(tls.context(), ALPN)
        except OSError:
            return False
        return True

    def _is_foreign(self, state: MemberState, certificate: x509.Certificate) -> bool:
        """Return whether a member whose host has a certificate of the federation sees another."""
        try:
            return not self._believed(state).public_web and not self._is_ours(certificate)
        except ConfigError:  # `_own_certificate` says so
            return False

    def _own_certificate(self) -> Diagnosis:
        assert self._state is not None
        try:
            ends = self._state.tls.ends()
        except ConfigError as error:
            return ill("certificate", str(error), _ANEW)
        if ends < self._now():
            return ill("certificate", "this member's has ended", _ANEW)
        if soon := near_end(ends):
            return near("certificate", soon, "`tacit join` renews it by itself while it works")
        return well("certificate", f"is valid for {(ends - self._now()) / 86400:.0f} days")

    def _host_version(self) -> Diagnosis:
        """Ask the host, as this member, which tacit it has."""
        assert self._state is not None
        assert self._authority is not None
        try:
            with HostClient(
                self._route.url,
                self._state.tls,
                self._route.proxies,
                public_web=self._authority.public_web,
            ) as host:
                theirs = host.version()
        except ServiceError as error:
            return ill("version", str(error), "try again, or ask the host's operator")
        except ConfigError as error:
            return ill("certificate", str(error), _ANEW)
        words = f"{self._version or '?'} here, {theirs or '?'} at the host"
        if must_move := who_must_move(theirs, self._version):
            return ill("version", must_move, "runs go on when that is done; nothing is lost")
        return well("version", words)

    def _broker(self) -> Diagnosis:
        """Connect to the broker as this member, and leave."""
        assert self._state is not None
        tls = self._state.tls
        try:
            certificate = self._route.certificate(ALPN, tls)
        except (OSError, ConfigError) as error:
            return ill(
                "broker",
                f"{self._route.address} does not hand us to it ({error or 'closed'})",
                "the host's operator looks with `tacit doctor --federation FOLDER`",
            )
        if not self._is_ours(certificate) and not self._is_believed(tls):
            return _taken_apart("for MQTT, ", certificate)
        member = self._state.membership()
        assert member is not None
        try:
            link = Connection(
                self._route.address,
                f"{member.member}-doctor",
                [],
                _unread,
                tls=tls,
                proxies=self._route.proxies,
            )
            link.start(SECONDS)
            link.stop()
        except TacitError as error:
            return ill("broker", str(error), "the host's operator looks whether you were revoked")
        return well("broker", "lets this member in")


def _unread(message: Inbound) -> None:
    """Take no message: nothing is subscribed to."""
    message.done()


def _taken_apart(where: str, certificate: x509.Certificate) -> Diagnosis:
    issuer = printable(certificate.issuer.rfc4514_string(), 100)
    return ill(
        "tls", f"{where}somebody takes it apart: {issuer} has signed the certificate", _APART
    )
