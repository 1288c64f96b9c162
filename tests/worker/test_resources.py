"""The ledger that a worker opens: of own data, and not while another deals it in another way."""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tacit_services.identity.folder import Identities
from tacit_services.worker.resources import ledger_of

from tacit import config
from tacit.errors import PrivacyError
from tests.project.test_tune import rows, run_of


def test_two_bare_edges_do_not_deal_the_same_rows_in_two_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    rows(tmp_path / "train.csv", 300, seed=2)
    first, other = (config.load(run_of(tmp_path), seed=seed) for seed in (1, 2))
    with ExitStack() as open_:
        one, two = (Identities(tmp_path / name).acquire(2, threading.Event()) for name in "ab")
        assert one is not None
        assert two is not None
        open_.enter_context(closing(one))
        open_.enter_context(closing(two))
        with (
            ledger_of(first.source, one),
            pytest.raises(PrivacyError, match="an edge is training on it as it was dealt"),
            ledger_of(other.source, two),
        ):
            pass
        with ledger_of(other.source, two):  # the control
            pass
