"""`make down` takes away all that README's compose commands made, of whatever profile, but for the
volumes: ledgers lie there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, docker, needs_engine
from tests.helpers.servers import free_port

pytestmark = pytest.mark.e2e
PROFILES = ("--profile", "vertical", "--profile", "gossip", "--profile", "alone")
VOLUMES = 10


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """Yield containers, networks and volumes of three profiles, created and not started."""
    needs_engine()
    stack = Stack(f"tacit-down-{os.getpid()}", free_port(), ["compose.yaml"], tmp_path)
    stack.compose("build", seconds=900.0)
    stack.compose(*PROFILES, "create", "--no-build")
    yield stack
    stack.compose(*PROFILES, "down", "--volumes", "--remove-orphans")


def left(stack: Stack) -> dict[str, int]:
    """Return how many containers, networks and volumes of the project there are."""
    label = f"label=com.docker.compose.project={stack.project}"
    options = {"container": ("--all",), "network": (), "volume": ()}
    return {
        kind: len(docker(kind, "ls", "--quiet", "--filter", label, *more).split())
        for kind, more in options.items()
    }


def test_nothing_is_left_that_a_later_up_would_trip_over(stack: Stack) -> None:
    existing = left(stack)
    assert existing["container"] >= 5 + 4 + 8 + 5  # edges, parties, peers, edges alone
    assert existing["volume"] == VOLUMES
    assert existing["network"] >= 2

    stack.make("down")

    assert left(stack) == {"container": 0, "network": 0, "volume": VOLUMES}

    stack.make("down", "ALL=1")

    assert left(stack) == {"container": 0, "network": 0, "volume": 0}
