"""A Redis with two replicas, and three Sentinels that choose another primary when it dies."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import redis

from tests.helpers.servers import HOST, RedisServer, free_port, need, wait_for

NAME = "tacit"
_SERVER = """\
bind {host}
port {port}
dir {folder}
save ""
appendonly yes
appendfsync always
repl-diskless-sync-delay 0
repl-ping-replica-period 1
"""
_SENTINEL = """\
bind {host}
port {port}
dir {folder}
sentinel monitor {name} {host} {primary} 2
sentinel down-after-milliseconds {name} 800
sentinel failover-timeout {name} 4000
"""


class RedisFleet:
    """Three servers, one of them the primary, and their Sentinels."""

    def __init__(
        self, folder: Path, servers: list[RedisServer], sentinels: list[RedisServer]
    ) -> None:
        self._folder = folder
        self.servers = servers
        self.sentinels = sentinels

    def url(self, replicas: int = 1, wait_ms: int = 1000) -> str:
        """Address for open_store."""
        places = ",".join(f"{each.host}:{each.port}" for each in self.sentinels)
        return f"redis+sentinel://{places}/{NAME}?replicas={replicas}&wait_ms={wait_ms}"

    def primary(self) -> RedisServer:
        """Return the server that all Sentinels name, once they agree."""
        chosen = list[RedisServer]()

        def agreed() -> bool:
            ports = self._named()
            chosen[:] = [server for server in self.servers if server.port in ports]
            return len(ports) == len(chosen) == 1

        wait_for(agreed)
        return chosen[0]

    def replicas(self) -> list[RedisServer]:
        """Return the other servers."""
        primary = self.primary()
        return [server for server in self.servers if server is not primary]

    def await_copies(self) -> None:
        """Return once every replica that lives follows the primary, and the Sentinels know it."""
        wait_for(self._settled)

    def kill(self) -> None:
        """Kill the primary with SIGKILL, wait for the next, and start it again as a replica."""
        primary = self.primary()
        primary.kill()
        wait_for(lambda: self._named() not in ({primary.port}, set()))
        primary.start()

    def wipe(self, server: RedisServer) -> None:
        """Delete what a server that was killed has on its disk."""
        place = self._folder / f"server-{self.servers.index(server)}"
        shutil.rmtree(place / "appendonlydir")

    def _settled(self) -> bool:
        with suppress(redis.RedisError, OSError):
            facts = [_asked(sentinel, "sentinel_master") for sentinel in self.sentinels]
            ports = self._named()
            count = len(self.servers) - 1
            complete = all(
                int(each["num-slaves"]) == count and int(each["num-other-sentinels"]) == 2
                for each in facts
            )
            if not complete or len(ports) != 1:
                return False
            with redis.Redis(HOST, ports.pop()) as client:
                state: Any = client.info("replication")
            online = [state.get(f"slave{n}", {}).get("state") for n in range(count)]
            return online == ["online"] * count
        return False

    def _named(self) -> set[int]:
        """Return the ports that the Sentinels name."""
        ports = set[int]()
        for sentinel in self.sentinels:
            with suppress(redis.RedisError, OSError):
                place = _asked(sentinel, "sentinel_get_master_addr_by_name")
                ports.add(int(place[1]))
        return ports


def paused(server: RedisServer) -> None:
    """Stop a server where it is; it keeps its connections."""
    os.kill(server.pid, signal.SIGSTOP)


def resumed(server: RedisServer) -> None:
    """Let a paused server go on."""
    os.kill(server.pid, signal.SIGCONT)


def _asked(server: RedisServer, question: str) -> Any:
    with redis.Redis(server.host, server.port, socket_timeout=5.0) as client:
        return getattr(client, question)(NAME)


@contextmanager
def redis_fleet(folder: Path) -> Iterator[RedisFleet]:
    """Yield a fleet whose files are in `folder`."""
    binary = need("redis-server")
    with ExitStack() as stack:

        def started(name: str, text: str, *more: str) -> RedisServer:
            place = folder / name
            place.mkdir()
            port = free_port()
            file = place / "redis.conf"  # the servers write their present primary there
            file.write_text(text.format(host=HOST, port=port, folder=place))
            server = RedisServer([binary, str(file), *more], port, place / "log.txt")
            stack.callback(server.kill)
            server.start()
            return server

        first = started("server-0", _SERVER)
        following = f"{_SERVER}replicaof {HOST} {first.port}\n"
        servers = [first, *(started(f"server-{n}", following) for n in (1, 2))]
        watching = _SENTINEL.replace("{name}", NAME).replace("{primary}", str(first.port))
        sentinels = [started(f"sentinel-{n}", watching, "--sentinel") for n in range(3)]
        fleet = RedisFleet(folder, servers, sentinels)
        fleet.await_copies()
        yield fleet
