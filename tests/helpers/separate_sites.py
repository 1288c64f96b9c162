"""A federation whose machines have nothing in common but one port of the host's.

Each machine has a network namespace, a HOME, and folders that no other one sees. At each member's
cable a sniffer listens. The host has the tree; the members have it, or tacit's wheel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.helpers.federation import TACIT, Host, Member
from tests.helpers.namespaces import HOST_ADDRESS, Namespace, Reachable, Site, network
from tests.helpers.squid import Squid, squid
from tests.helpers.wheels import Venv
from tests.helpers.wire_sniffer import KEY_LOG, Sniffer

PORT = 8443
PROXY_USER = ("site 2", "p@ss: word")
_MODULE = "tls_key_log"


class SeparateHost(Host):
    """The host, in a namespace of its own."""

    def __init__(self, folder: Path, namespace: Namespace, hidden: Sequence[Path]) -> None:
        self._namespace = namespace
        program = (*namespace.before(hidden), *TACIT)
        super().__init__(folder, program, f"{HOST_ADDRESS}:{PORT}")

    def runs(self) -> dict[str, dict[str, Any]]:
        """Return how each run stands, by name."""
        return self._namespace.inside(super().runs)


class SeparateMember(Member):
    """A member in a namespace of its own, with a sniffer at its cable."""

    def __init__(
        self,
        folder: Path,
        number: int,
        site: Site,
        program: Sequence[str],
        variables: Mapping[str, str],
    ) -> None:
        self.site = site
        key_log = folder / "tls-secrets"
        logged = {"SSLKEYLOGFILE": str(key_log), **variables}
        super().__init__(folder, number, f"Site {number}", program, logged)
        self.sniffer = Sniffer(site, key_log)

    def ledger(self) -> Path:
        """Return the file of its data's ledger."""
        (path,) = (self.folder / "home" / "tacit" / "ledgers").glob("*/*/edge-*.db")
        return path


def with_key_log(environment: Venv) -> tuple[str, ...]:
    """Let every process of an environment write down the secrets of its TLS connections.

    Returns how `tacit` is begun there.
    """
    folder = next((environment.folder / "lib").glob("python3*")) / "site-packages"
    (folder / f"{_MODULE}.py").write_text(KEY_LOG)
    (folder / f"{_MODULE}.pth").write_text(f"import {_MODULE}\n")
    return (str(environment.folder / "bin" / "tacit"),)


@contextmanager
def separate_federation(
    folder: Path, program: Sequence[str], members: int, behind_proxy: int
) -> Iterator[tuple[SeparateHost, list[SeparateMember], Squid]]:
    """Yield a host that serves, members that have not joined, and the proxy.

    program: how members begin `tacit`. behind_proxy: the number of the member that reaches the host
    by the proxy alone.
    """
    places = [folder / "host", *(folder / f"site{number}" for number in range(members))]
    for place in places:
        place.mkdir()
    with ExitStack() as stack:
        namespace, sites = stack.enter_context(network(members))
        gateway = sites[behind_proxy].gateway
        serving = squid(dict([PROXY_USER]), ports=str(PORT), host=gateway)
        proxy = namespace.inside(lambda: stack.enter_context(serving))
        host = SeparateHost(places[0], namespace, places[1:])
        stack.callback(host.stop)
        machines = []
        for number, site in enumerate(sites):
            place = places[1 + number]
            out, variables = Reachable(HOST_ADDRESS, PORT), {}
            if number == behind_proxy:
                out = Reachable(gateway, proxy.port)
                user, password = (quote(word, safe="") for word in PROXY_USER)
                variables = {"HTTPS_PROXY": f"http://{user}:{password}@{proxy.address}"}
            site.allow(out)
            hidden = [other for other in places if other != place]
            member = SeparateMember(
                place, number, site, (*site.before(hidden), *program), variables
            )
            stack.callback(member.sniffer.close)
            stack.callback(member.stop)
            member.sniffer.start()
            machines.append(member)
        host.serve("--log", "info")
        yield host, machines, proxy
