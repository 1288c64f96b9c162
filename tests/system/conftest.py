"""A browser; a broker and a store of a test's own; a file whose store is another one has its own `redis`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.helpers.browser import chromium
from tests.helpers.servers import Mosquitto, RedisServer, mosquitto, redis_server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as chrome:
        yield chrome


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path) as running:
        yield running


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path, "--auto-aof-rewrite-min-size", "1gb") as running:
        yield running
