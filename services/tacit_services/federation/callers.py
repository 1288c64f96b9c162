"""Who asks at a federation's host, as far as it is seen before a request is looked at.

It decides nothing but whose allowance a request is counted to (transport/http_pace.py).
"""

from __future__ import annotations

import hashlib

from fastapi.security.utils import get_authorization_scheme_param
from starlette.datastructures import Headers
from starlette.types import Scope

from tacit.errors import ConfigError
from tacit_services.federation.people import Right
from tacit_services.federation.person_access import PersonAccess
from tacit_services.transport.http_pace import Caller


class Callers:
    """Finds out who asks: a person by a token, a member by a certificate that TLS has verified."""

    def __init__(self, access: PersonAccess) -> None:
        self._access = access

    def caller(self, scope: Scope) -> Caller | None:
        """Return who asks; None: a stranger. The operator waits for nobody."""
        chain = scope.get("extensions", {}).get("tls", {}).get("client_cert_chain", ())
        if chain:
            return Caller(f"certificate {hashlib.sha256(chain[0].encode()).hexdigest()}")
        header = Headers(scope=scope).get("authorization")
        scheme, token = get_authorization_scheme_param(header)
        if scheme.lower() != "bearer":
            return None
        try:
            person = self._access.known(token)
        except ConfigError:  # the request itself says so
            return None
        if person is None:
            return None
        return Caller(f"person {person.name}", waits=not person.may(Right.OPERATOR))
