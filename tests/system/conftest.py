"""A broker and a store of a test's own; a file whose store is another one has its own `redis`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.servers import Mosquitto, RedisServer, mosquitto, redis_server


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path) as running:
        yield running


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path, "--auto-aof-rewrite-min-size", "1gb") as running:
        yield running
