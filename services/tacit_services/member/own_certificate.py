"""A member's certificate: renewed while it works, and what to do once it has ended."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from cryptography import x509

from tacit import regular_file
from tacit.errors import ConfigError, ServiceError
from tacit_services.disk import files
from tacit_services.enrollment import certificates
from tacit_services.enrollment.join_client import JoinClient
from tacit_services.member.member_state import Membership, MemberState
from tacit_services.transport.proxy import DIRECT, Proxies

log = logging.getLogger("tacit.member")
_TRIES = 20  # in the time that is left, where the host gives none
_LONGEST = 3600.0  # seconds between two tries
_SHORTEST = 1.0


class OwnCertificate:
    """The certificate of one membership, in its state folder.

    Guarantee: the file is replaced in one step, by a certificate of the same key and member. A
    later connection shows the new one, and an open connection stays.
    """

    def __init__(
        self,
        state: MemberState,
        membership: Membership,
        proxies: Proxies = DIRECT,
        clock: Callable[[], float] = time.time,
        stop: threading.Event | None = None,
    ) -> None:
        """clock: seconds since 1970. stop: once it is set the host is not waited for."""
        self._tls = state.tls
        self._membership = membership
        self._proxies = proxies
        self._clock = clock
        self._stop = stop
        self._next = 0.0  # when it is tried again

    def has_ended(self) -> bool:
        """Return whether the host believes it no more. Raises ConfigError for no certificate."""
        return self._tls.ends() <= self._clock()

    def check(self) -> None:
        """Raise ConfigError, with what to do, where it has ended."""
        if not self.has_ended():
            return
        ended = datetime.fromtimestamp(self._tls.ends(), UTC)
        known = self._membership
        raise ConfigError(
            f"the certificate of {known.name} ({known.member}) ended on {ended:%Y-%m-%d %H:%M} "
            f"UTC; ask the host of {known.url} for a new join line (tacit members invite), and "
            "join by it with the same --state: number and ledger stay"
        )

    def renew(self) -> bool:
        """Renew it where two thirds of its time are over; returns whether it is a new one.

        Where the host gives none, that is logged, and tried again later. Raises ConfigError where
        it has ended meanwhile.
        """
        now = self._clock()
        if now < self._next:
            return False
        certificate = self._read()
        if not certificates.mostly_over(certificate, now):
            return False
        self.check()
        try:
            newest = self._asked()
        except (ConfigError, ServiceError) as error:
            left = self._tls.ends() - now
            self._next = now + min(_LONGEST, max(_SHORTEST, left / _TRIES))
            log.warning("the certificate was not renewed: %s; trying again", error)
            return False
        files.write(self._tls.cert, certificates.pem(newest), files.PUBLIC)
        log.info("the certificate was renewed, until %s", newest.not_valid_after_utc)
        return True

    def _asked(self) -> x509.Certificate:
        known = self._membership
        trusted = self._tls.context()
        if known.public_web:
            trusted.load_default_certs()
        try:
            key = certificates.read_key(regular_file.content(self._tls.key))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._tls.key}: {error}") from error
        answer = JoinClient(known.url, self._proxies, self._stop).renew(trusted, key)
        if answer.edge != known.member:
            raise ServiceError(f"{known.url}: its certificate is of {answer.edge[:80]!r}")
        if not certificates.is_issued_by(answer.certificate, self._tls.ca.read_bytes()):
            raise ServiceError(f"{known.url}: its certificate is not of the federation's authority")
        if answer.certificate.not_valid_after_utc.timestamp() <= self._tls.ends():
            raise ServiceError(f"{known.url}: gives no certificate that lasts longer")
        return answer.certificate

    def _read(self) -> x509.Certificate:
        try:
            return x509.load_pem_x509_certificate(regular_file.content(self._tls.cert))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._tls.cert}: not a certificate ({error})") from error
