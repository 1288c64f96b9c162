"""The ledger that a worker opens: of own data, and not while another deals it in another way."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tacit_services.identity import own_ledgers
from tacit_services.identity.folder import Identities
from tacit_services.identity.lineage import TRAINING
from tacit_services.worker.resources import ledger_of

from tacit import config
from tacit.errors import PrivacyError
from tests.helpers.processes import Service
from tests.unit.identity.test_kinship import charge
from tests.unit.project.test_tune import rows, run_of


def test_two_bare_edges_do_not_deal_the_same_rows_in_two_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    rows(tmp_path / "train.csv", 300, seed=2)
    first, other = (config.load(run_of(tmp_path), seed=seed) for seed in (1, 2))
    with ExitStack() as open_:
        edge_a, edge_b = (
            Identities(tmp_path / name).acquire(2, threading.Event()) for name in "ab"
        )
        assert edge_a is not None
        assert edge_b is not None
        open_.enter_context(closing(edge_a))
        open_.enter_context(closing(edge_b))
        with (
            ledger_of(first.source, edge_a, TRAINING),
            pytest.raises(PrivacyError, match="an edge is training on it as it was dealt"),
            ledger_of(other.source, edge_b, TRAINING),
        ):
            pass
        with ledger_of(other.source, edge_b, TRAINING):  # the control
            pass


def test_an_edge_that_its_owner_forbids_binds_its_rows_to_no_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    rows(tmp_path / "train.csv", 300, seed=2)
    (tmp_path / "policy.toml").write_text("max_epsilon = 0.01")
    settings = {
        "TACIT_RUN_FILE": str(run_of(tmp_path)),
        "TACIT_POLICY": str(tmp_path / "policy.toml"),
        "TACIT_IDENTITIES": str(tmp_path / "identities"),
        "TACIT_BROKER": "127.0.0.1:1",
    }
    edge = Service("edge", settings, tmp_path / "log")
    edge.start()
    assert edge.wait() == 5
    assert "policy max_epsilon=0.01" in edge.log
    assert not list(tmp_path.glob("home/tacit/ledgers/*/data.json"))


def test_an_edge_logs_how_much_of_its_data_is_of_others_as_its_owner_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    rows(tmp_path / "train.csv", 300, seed=2)
    path = run_of(tmp_path)
    owned = config.load(path).source.owned(0)
    assert owned is not None
    charge(own_ledgers.place(owned, 0, tmp_path / "home" / "tacit"), 9)
    rows(tmp_path / "more.csv", 310, seed=2)
    text = path.read_text().replace('"train.csv"', '"more.csv"')
    path.write_text(text.replace("[data]", f"[data]\napart_from = [{owned.name!r}]"))
    caplog.set_level(logging.INFO, "tacit.edge")
    identity = Identities(tmp_path / "a").acquire(2, threading.Event())
    assert identity is not None
    with closing(identity), ledger_of(config.load(path).source, identity, TRAINING):
        pass
    assert "a new ledger begins: no other data like this is known" in caplog.text
    others = f"of the rows (of the smaller data) are those of {owned.name}, which data.apart_from"
    assert others in caplog.text
