"""A pace for every address: how many requests a second strangers may make of a REST interface.

Without it one address that asks as fast as it can holds the processor that a run needs.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from tacit_services.transport.bucket import Bucket
from tacit_services.transport.problems import address_of, problem

# requests of one address: a second in the long run, and at once
RATE = 50.0
BURST = 200.0
MOST = 1024  # addresses that are told apart
_NETWORK = 64  # bits of an IPv6 address that say whose it is; the rest is its owner's choice
_SAID = (
    f"{RATE:.0f} requests a second of one address, {BURST:.0f} at once; "
    "the operator's token lets in more"
)


class Pace:
    """Middleware that answers 429 to one request too many of an address, before it is looked at.

    An address is one of IPv4, or a /64 of IPv6. Guarantee: memory for MOST of them, whatever their
    number. Where more than MOST ask within BURST/RATE seconds, those that came last share one
    allowance. Called in one thread, the server's.
    """

    def __init__(
        self,
        app: ASGIApp,
        free: Callable[[Scope], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """free: whether a request always gets in."""
        self._app = app
        self._free = free
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}  # the address that asked longest ago is first
        self._others = Bucket(RATE, BURST, BURST, clock())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        # A Unix socket's client has no address: it is a program of this machine's, which keeps its
        # own clients to a pace.
        if scope["type"] == "http" and scope.get("client") and not self._free(scope):
            now = self._clock()
            if self._bucket(whose(address_of(scope)), now).take(now):
                refusal = problem(429, _SAID, {"Retry-After": "1"})
                return await refusal(scope, receive, send)
        return await self._app(scope, receive, send)

    def _bucket(self, address: str, now: float) -> Bucket:
        self._forget(now)
        bucket = self._buckets.pop(address, None)
        if bucket is None and len(self._buckets) >= MOST:
            return self._others
        current = self._buckets[address] = bucket or Bucket(RATE, BURST, BURST, now)
        return current

    def _forget(self, now: float) -> None:
        """Let go of those whose bucket is full by now: a new one would be the same."""
        while self._buckets:
            longest_ago = next(iter(self._buckets))
            if now - self._buckets[longest_ago].at < BURST / RATE:
                return
            del self._buckets[longest_ago]


def whose(address: str) -> str:
    """Return the address, or, of IPv6, the network whose addresses are one owner's.

    >>> whose("192.0.2.1"), whose("2001:db8::1:2:3:4"), whose("::ffff:192.0.2.1"), whose("")
    ('192.0.2.1', '2001:db8::/64', '192.0.2.1', '')
    """
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, _NETWORK), strict=False))
