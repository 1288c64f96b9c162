"""A pace for every address: how many requests a second strangers may make of a REST interface.

Without it one address that asks as fast as it can holds the processor that a run needs. Strangers
at an address are kept to its pace, and take it from nobody who shows who they are.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass

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
    "the operator's token, or the owner's, lets in more"
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who has shown who they are. name: it is nobody else's. waits: keeps to a pace."""

    name: str
    waits: bool = True


def nobody_shown(_: Scope) -> Caller | None:
    """Say that nobody can show who they are."""


class Pace:
    """Middleware that answers 429 to one request too many of an address, before it is looked at.

    An address is one of IPv4, or a /64 of IPv6. A caller has an allowance besides that of the
    address. Guarantee: memory for MOST of either, for any number of them. If more than MOST ask
    within BURST/RATE seconds, those that came last share one allowance. Called in one thread, the
    server's.
    """

    def __init__(
        self,
        app: ASGIApp,
        free: Callable[[Scope], bool],
        caller: Callable[[Scope], Caller | None] = nobody_shown,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """free: whether a request always gets in. caller: who asks; it may read files.

        caller is asked only where the address has used its own allowance up.
        """
        self._app = app
        self._free = free
        self._caller = caller
        self._clock = clock
        self._addresses = _Allowances(clock())
        self._callers = _Allowances(clock())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        # A Unix socket's client has no address: it is a program of this machine's, which keeps its
        # own clients to a pace.
        if scope["type"] == "http" and scope.get("client") and not self._free(scope):
            now = self._clock()
            spent = not self._addresses.lets_in(whose(address_of(scope)), now)
            if spent and not self._lets_in(self._caller(scope), now):
                refusal = problem(429, _SAID, {"Retry-After": "1"})
                return await refusal(scope, receive, send)
        return await self._app(scope, receive, send)

    def _lets_in(self, caller: Caller | None, now: float) -> bool:
        if caller is None:
            return False
        return not caller.waits or self._callers.lets_in(caller.name, now)


class _Allowances:
    """The allowances of at most MOST, by name; of more, those that came last share one."""

    def __init__(self, now: float) -> None:
        self.buckets: dict[str, Bucket] = {}  # whoever asked longest ago is first
        self._others = Bucket(RATE, BURST, BURST, now)

    def lets_in(self, name: str, now: float) -> bool:
        """Return whether one more request is within the allowance of `name`, and take it."""
        return not self._bucket(name, now).take(now)

    def _bucket(self, name: str, now: float) -> Bucket:
        self._forget(now)
        bucket = self.buckets.pop(name, None)
        if bucket is None and len(self.buckets) >= MOST:
            return self._others
        current = self.buckets[name] = bucket or Bucket(RATE, BURST, BURST, now)
        return current

    def _forget(self, now: float) -> None:
        """Let go of those whose bucket is full by now: a new one would be the same."""
        while self.buckets:
            longest_ago = next(iter(self.buckets))
            if now - self.buckets[longest_ago].at < BURST / RATE:
                return
            del self.buckets[longest_ago]


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
