"""Machines in network namespaces: each with one port out, and folders that no other one sees.

The host's namespace has the address HOST_ADDRESS and a cable to each site. A site's firewall lets
it talk to one address and port, and its routes lead to no other; where the site is behind a proxy,
these are the proxy's. Nothing of it touches the machine's own network.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

HOST_ADDRESS = "10.77.0.1"
_CLONE_NEWNET = 0x40000000
_NAMED = Path("/var/run/netns")
# Its arguments: how many folders are hidden, these, and a command.
_HIDE = """
count=$1; shift
while [ "$count" -gt 0 ]; do mount -t tmpfs -o ro,size=4k hidden "$1"; shift; count=$((count - 1)); done
exec "$@"
"""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reachable:
    """The one address and port that a site can talk to."""

    address: str
    port: int


class Namespace:
    """A network namespace, with a thread that lives in it."""

    def __init__(self, name: str) -> None:
        """Make it; `end` removes it."""
        self.name = name
        _do("ip", "netns", "add", name)
        self._thread = ThreadPoolExecutor(1, initializer=self._enter)

    def inside(self, act: Callable[[], T]) -> T:
        """Return what `act` returns, called in this namespace; its child processes are in it, too."""
        return self._thread.submit(act).result()

    def ip(self, *arguments: str) -> None:
        """Do `ip ARGUMENTS` in this namespace."""
        _do("ip", "-n", self.name, *arguments)

    def do(self, *command: str) -> str:
        """Return what a command prints in this namespace."""
        return _do("ip", "netns", "exec", self.name, *command)

    def before(self, hidden: Sequence[Path]) -> tuple[str, ...]:
        """Return what to write before a command so that it runs here and finds `hidden` empty."""
        folders = (str(len(hidden)), *map(str, hidden))
        return ("ip", "netns", "exec", self.name, "sh", "-c", _HIDE, "sh", *folders)

    def listeners(self) -> list[str]:
        """Return the lines of the kernel's tables for sockets that wait to be talked to."""
        lines = []
        for table, waiting in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
            rows = self.do("cat", f"/proc/net/{table}").splitlines()[1:]
            lines += [row for row in rows if row.split()[3] == waiting]
        return lines

    def end(self) -> None:
        """Remove it: its processes have ended."""
        self._thread.shutdown()
        _do("ip", "netns", "del", self.name)

    def _enter(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with (_NAMED / self.name).open() as place:
            if libc.setns(place.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"no way into the namespace {self.name}")


class Site(Namespace):
    """The namespace of a site: one cable, one route, one port out."""

    cable = "out"

    gateway = ""  # the host's end of the cable

    def join(self, host: Namespace, number: int) -> None:
        """Join it to `host` by a cable whose ends are 10.77.NUMBER.1 (the host's) and .2."""
        self.gateway = f"10.77.{number}.1"
        far = f"site{number}"
        host.ip("link", "add", far, "type", "veth", "peer", "name", self.cable, "netns", self.name)
        host.ip("addr", "add", f"{self.gateway}/30", "dev", far)
        host.ip("link", "set", far, "up")
        self.do("sysctl", "-q", "-w", "net.ipv6.conf.all.disable_ipv6=1")
        self.ip("addr", "add", f"10.77.{number}.2/30", "dev", self.cable)
        self.ip("link", "set", "lo", "up")
        self.ip("link", "set", self.cable, "up")

    def allow(self, out: Reachable) -> None:
        """Let this site begin connections to `out`, and none to elsewhere.

        Within the machine it may talk: paho wakes its own thread over the loopback interface.
        """
        if out.address != self.gateway:
            self.ip("route", "add", f"{out.address}/32", "via", self.gateway)
        way = ("-p", "tcp", "-j", "ACCEPT")
        there = ("-d", out.address, "--dport", str(out.port))
        back = ("-s", out.address, "--sport", str(out.port), "!", "--syn")
        self.do("iptables", "-A", "OUTPUT", *way, *there)
        self.do("iptables", "-A", "INPUT", *way, *back)
        self.do("iptables", "-A", "OUTPUT", "-o", "lo", "-j", "ACCEPT")
        self.do("iptables", "-A", "INPUT", "-i", "lo", "-j", "ACCEPT")
        for chain in ("OUTPUT", "INPUT", "FORWARD"):
            self.do("iptables", "-P", chain, "DROP")

    def refused(self) -> int:
        """Return how many packets this site has tried to send elsewhere."""
        first = self.do("iptables", "-L", "OUTPUT", "-v", "-x", "-n").splitlines()[0]
        _, _, rest = first.partition("policy DROP ")
        return int(rest.split()[0])


@contextmanager
def network(sites: int) -> Iterator[tuple[Namespace, list[Site]]]:
    """Yield the host's namespace, and those of so many sites, which may talk to nobody yet.

    Skips the test where this machine does not permit it.
    """
    _require_permission()
    with ExitStack() as stack:
        prefix = f"tacit{os.getpid()}"
        host = Namespace(f"{prefix}h")
        stack.callback(host.end)
        host.ip("link", "set", "lo", "up")
        host.ip("addr", "add", f"{HOST_ADDRESS}/32", "dev", "lo")
        places = []
        for number in range(1, sites + 1):
            place = Site(f"{prefix}s{number}")
            stack.callback(place.end)
            place.join(host, number)
            places.append(place)
        yield host, places


def _require_permission() -> None:
    for binary in ("ip", "iptables", "unshare", "sysctl"):
        if shutil.which(binary) is None:
            pytest.skip(f"network namespaces: {binary} is not installed")
    if os.geteuid():
        pytest.skip("network namespaces: only root may make them")
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"network namespaces: not permitted here ({tried.stderr.strip()})")


def _do(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout
