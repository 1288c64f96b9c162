"""The owner's page of a member, on this machine alone: `tacit join --page 127.0.0.1:8100`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tacit.errors import ConfigError
from tacit_services.identity.ledger_loan import LifetimeBound
from tacit_services.member.member_state import MemberState
from tacit_services.member.owner_desk import OwnerDesk
from tacit_services.member.owner_rest import TOKEN, create_app, new_token
from tacit_services.transport import http_server
from tacit_services.transport.address import bind, checked, split_host_port

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def check_address(address: str) -> None:
    """Raise ConfigError for an address that others than this machine can reach."""
    try:
        host, port = split_host_port(checked(address))
    except ValueError as error:
        raise ConfigError(f"--page {address}: {error}") from error
    if host not in _LOOPBACK:
        raise ConfigError(f"--page {address}: is for this machine alone; write 127.0.0.1:{port}")


@contextmanager
def owner_page(address: str, state: MemberState, home: Path, bound: LifetimeBound) -> Iterator[str]:
    """Serve the page at `address` in a thread, until the end of the block; yields what to tell.

    home: the user's data folder. bound: the owner's, on the data. Raises ServiceError where
    the address is in use.
    """
    listener = bind(address)
    token = new_token(state)
    host, port = listener.getsockname()[:2]
    desk = OwnerDesk(state, home, bound)
    server = http_server.HttpServer(create_app(desk, token), timeout_graceful_shutdown=1)
    with closing(desk), http_server.in_thread(server, listener, "page"):
        yield f"page: http://{host}:{port}/ (its token is in {(state.folder / TOKEN).resolve()})"
