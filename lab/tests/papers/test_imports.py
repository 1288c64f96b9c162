"""What figures load: nothing of a network."""

from __future__ import annotations

from tests.unit.source.test_extras import CLIENTS, SERVERS, loaded


def test_figures_load_nothing_of_a_network() -> None:
    modules = loaded("from tacit_lab.papers.figures import page, sweep, draw")

    assert "torch" in modules
    assert not modules & (SERVERS | CLIENTS)
