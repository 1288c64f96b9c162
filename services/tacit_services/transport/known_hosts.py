"""Under which names a REST interface may be asked for.

A foreign page can make its own name mean 127.0.0.1 (DNS rebinding), and then read, in the browser
that opens it, what is served there. Its requests have its name as their Host.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tacit_services.transport.problems import problem

ANY = "*"


class KnownHosts:
    """Middleware that answers 421 to a request for a host of another name.

    A browser's request always names its host; one without is let through. So is every address: a
    page that was found by an address has not been found by a name.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str] = ()) -> None:
        """names: beside localhost and this machine's own; ANY among them: all are known."""
        self._app = app
        self._names = {name.lower() for name in ("localhost", socket.gethostname(), *names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http":
            host = Headers(scope=scope).get("host")
            if host is not None and not self._is_known(host):
                reason = (
                    f"host {host[:100]!r} is not one of this server's; TACIT_HTTP_HOSTS adds it"
                )
                return await problem(421, reason)(scope, receive, send)
        return await self._app(scope, receive, send)

    def _is_known(self, host: str) -> bool:
        name = host.lower()
        port = host.rpartition(":")[2]
        if port.isdigit() and not host.endswith("]"):
            name = name.rpartition(":")[0]
        name = name.removesuffix(".")
        if ANY in self._names or name in self._names or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True
