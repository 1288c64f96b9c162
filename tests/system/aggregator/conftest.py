"""Shared by the tests of this room: a real broker, and the REST interface of a real driver.

A module whose rig is another one has a fixture of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.helpers.rest import Rig, Stage, served, staged
from tests.helpers.servers import PATIENCE, Mosquitto, mosquitto


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def address(broker: Mosquitto) -> str:
    return f"{broker.host}:{broker.port}"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as new_stage:
        yield new_stage


@pytest.fixture
def web(rig: Rig, stage: Stage) -> Iterator[httpx.Client]:
    with (
        stage.showing(rig) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Yield a client of one server for the tests that change nothing: a start and stop takes 0.2 s."""
    rig = Rig(tmp_path_factory.mktemp("still"))
    with (
        served(rig) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as client,
    ):
        yield client
