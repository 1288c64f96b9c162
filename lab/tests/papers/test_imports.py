"""What figures load: nothing of a network."""

from __future__ import annotations

from tests.unit.source.test_extras import CLIENTS, SERVERS, loaded


def test_figures_load_nothing_of_a_network() -> None:
    found = loaded("from tacit_lab.papers.figures import page, sweep, draw")

    assert "torch" in found
    assert not found & (SERVERS | CLIENTS)
