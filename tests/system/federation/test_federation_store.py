"""A federation's store: what it has confirmed is there after kill -9, and it is served once."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from pathlib import Path

import pytest
import redis
from tacit_services.children import processes
from tacit_services.children.processes import Child, restart_if_dead
from tacit_services.federation import store as module
from tacit_services.federation.store import FederationStore

from tacit.errors import ServiceError
from tests.helpers.servers import need, wait_for


def started(folder: Path) -> tuple[FederationStore, Child, redis.Redis]:
    need("redis-server")
    store, children = FederationStore(folder), list[Child]()
    url = store.start(children).address
    (child,) = children
    return store, child, redis.Redis.from_url(url)


def killed(child: Child) -> None:
    assert child.process is not None
    os.kill(child.process.pid, signal.SIGKILL)
    wait_for(lambda: child.code() is not None)


def test_what_was_confirmed_is_there_after_a_kill_and_under_the_same_address(
    tmp_path: Path,
) -> None:
    store, child, client = started(tmp_path / "store")
    client.set("run", "42")
    killed(child)
    restart_if_dead(child)
    wait_for(lambda: answers(client))
    assert client.get("run") == b"42"
    client.close()
    child.stop()
    store.close()
    store, child, client = started(tmp_path / "store")
    assert client.get("run") == b"42"
    client.close()
    child.stop()
    store.close()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.exceptions.ConnectionError:
        return False


def test_a_server_of_a_host_that_was_killed_is_waited_for(tmp_path: Path) -> None:
    # Given a server whose host is no more: only it holds the lock,
    folder = tmp_path / "store"
    store, child, client = started(folder)
    client.set("run", "42")
    store.close()
    # when the next host starts while that server still works, then it waits for its end.
    (ender := threading.Timer(0.5, child.stop)).start()
    second, successor, other = started(folder)
    ender.join()
    assert child.code() is not None
    assert other.get("run") == b"42"
    for connection in (client, other):
        connection.close()
    successor.stop()
    second.close()


def test_a_second_host_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "START_SECONDS", 0.2)
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ServiceError, match="another host works on it"):
            FederationStore(tmp_path).start([])


def test_without_redis_it_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_which", lambda name: None)
    store, children = FederationStore(tmp_path / "store"), list[Child]()
    url = store.start(children).address
    assert (url, children) == (f"sqlite:///{tmp_path}/store/store.db", [])
    store.close()
