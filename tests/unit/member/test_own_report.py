"""A report judges on the rows that a run has held out; of a run that held none out, on others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from tacit_services.member.own_report import own_report
from tacit_services.member.run_here import definition_of
from tacit_services.transport.proxy import DIRECT

from tacit.datasets.benchmarks.load import Dataset
from tacit.datasets.held_out import UnitSplit
from tacit.models import evaluate
from tacit.privacy.ledger import read_splits
from tests.helpers.past_run import HELD_OUT, LOOKS, ROWS, RUN, PastRun, past_run


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> PastRun:
    folder = tmp_path_factory.mktemp("member")
    return past_run(folder, folder / "home", **LOOKS)


def held_out(past: PastRun, keep: Path) -> Dataset:
    """Return the rows that the ledger's key holds out, read by the run itself."""
    assert past.key is not None
    source = definition_of(past.state, RUN).define().source
    part = source.edge(0, None, keep, UnitSplit(past.key, HELD_OUT))
    assert part.held_out is not None
    rows = part.held_out.for_edge(1)
    return Dataset(rows.x[: rows.records], rows.y[: rows.records], 2, "held out")


def test_both_models_are_judged_on_the_rows_that_the_run_has_held_out(
    judged: PastRun, tmp_path: Path
) -> None:
    report = own_report(judged.state, RUN, DIRECT, judged.home)
    rows = held_out(judged, tmp_path)
    assert (report.held_out, report.judged) == (True, len(rows))
    assert report.judged + report.learnt == ROWS
    assert report.judged != round(HELD_OUT * ROWS)  # a share that is drawn is not exact
    model = definition_of(judged.state, RUN).build_model()
    exact, _ = evaluate(model, judged.params, rows)
    assert report.metrics["accuracy"].federation == pytest.approx(exact)
    alone = report.metrics["accuracy"].alone
    assert alone is not None
    assert alone > 0.8


def test_a_run_that_has_learnt_from_all_rows_is_judged_on_a_fifth(tmp_path: Path) -> None:
    past = past_run(tmp_path, tmp_path / "home")
    report = own_report(past.state, RUN, DIRECT, past.home)
    assert (report.held_out, report.judged, report.learnt) == (False, 80, 320)
    assert read_splits(next(past.home.glob("ledgers/*/*/edge-*.db"))) == {}


def test_a_member_whose_ledger_holds_nothing_out_says_that_all_rows_were_learnt_from(
    judged: PastRun, tmp_path: Path
) -> None:
    shutil.copytree(judged.state.folder, tmp_path / "state")
    report = own_report(judged.state, RUN, DIRECT, tmp_path / "no home")
    assert (report.held_out, report.judged) == (False, 80)


def test_a_report_changes_nothing_that_it_reads(judged: PastRun) -> None:
    before = {path: path.read_bytes() for path in judged.home.rglob("*") if path.is_file()}
    generator = torch.random.get_rng_state()
    first = own_report(judged.state, RUN, DIRECT, judged.home)
    assert own_report(judged.state, RUN, DIRECT, judged.home) == first
    assert torch.equal(torch.random.get_rng_state(), generator)
    assert {path: path.read_bytes() for path in before} == before
