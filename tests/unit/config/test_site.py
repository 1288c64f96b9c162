"""Run files of federations: each member has rows of its own, and may state how many."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tacit import config
from tacit.algorithms import registry
from tacit.config import RunFile
from tacit.config.site import MOST_MEMBERS, Site
from tacit.datasets.own.own_rows import OwnRows
from tacit.errors import ConfigError
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.policy import Terms
from tacit.privacy.release import Releaser
from tacit.protocol.messages import GlobalModel, Push
from tests.helpers.offered import TABLE, federations_run, table

BATCH, ROWS = 50, 400


def member(folder: Path, rows: int | None, text: str | None = None) -> RunFile:
    """Return a federation's run file at member 7, whose table has 300 rows."""
    run = config.parse(text or federations_run(), "run.toml", federation=True)
    site = Site(7, table(folder / "elsewhere" / "mine.csv", 300, seed=3), rows)
    return config.read(config.as_tree(run), "offer", folder, site=site, own_code=False)


@pytest.mark.parametrize("kind", ["table", "arrays", "images", "python"])
def test_a_run_file_without_rows_is_for_a_federation(kind: str) -> None:
    text = federations_run(data={**TABLE, "kind": kind})
    with pytest.raises(ConfigError) as refused:
        config.parse(text, "run.toml")
    assert str(refused.value) == (
        "run.toml: data.train: missing; this run file is for a federation: tacit submit"
    )


def test_every_number_of_a_member_fits_into_a_federations_run() -> None:
    definition = config.parse(federations_run(), "run.toml", federation=True).define()
    assert {"edge-0", f"edge-{MOST_MEMBERS - 1}"} <= set(definition.worker_names)
    assert definition.plans.workers >= MOST_MEMBERS
    assert isinstance(definition.source, OwnRows)
    assert not definition.source.dealt


def test_a_members_file_lies_wherever_it_is_and_names_its_ledger(tmp_path: Path) -> None:
    # Given
    definition = member(tmp_path, None).define()
    # When
    owned = definition.source.owned(7)
    read = definition.source.edge(7, None, tmp_path / "keep").rows.for_edge(2)
    # Then
    assert owned is not None
    assert (owned.name, owned.dealing) == (str(tmp_path / "elsewhere" / "mine.csv"), "")
    assert read.records == 300


def test_a_member_that_states_its_rows_draws_at_its_own_rate_with_the_runs_noise(
    tmp_path: Path,
) -> None:
    theirs = member(tmp_path, None).define()
    ours = member(tmp_path, 250).define()
    assert theirs.plans.plan(7).sampling_rate == BATCH / ROWS
    assert ours.plans.plan(7).sampling_rate == BATCH / 250
    assert ours.plans.plan(7).noise_multiplier == theirs.plans.plan(7).noise_multiplier
    assert ours.plans.plan(7).batch == theirs.plans.plan(7).batch
    assert (ours.agreed, ours.terms, ours.fingerprint) == (
        theirs.agreed,
        theirs.terms,
        theirs.fingerprint,
    )


def test_noise_that_is_calibrated_is_the_runs_however_many_rows_a_member_states(
    tmp_path: Path,
) -> None:
    text = federations_run(privacy={"noise_multiplier": None, "pushes": 40, "epsilon": 2.0})
    theirs = member(tmp_path, None, text).define().plans.plan(7)
    for rows in (80, 250, 4000):
        ours = member(tmp_path, rows, text).define().plans.plan(7)
        assert ours.noise_multiplier == theirs.noise_multiplier
        assert ours.epsilon == theirs.epsilon
        # Fewer rows are drawn more often: the same budget pays for fewer pushes.
        fewer = (ours.pushes_left(()) or 0) < (theirs.pushes_left(()) or 0)
        assert fewer == (rows < ROWS)


def test_each_push_is_charged_at_the_rate_that_the_member_draws_at(tmp_path: Path) -> None:
    # Given: a member that states 250 rows, and a server that takes it to have 400
    definition = member(tmp_path, 250).define()
    model = definition.build_model()
    part = definition.source.edge(7, None, tmp_path / "keep")
    ledger = Ledger(":memory:", "mine")
    releaser = Releaser(definition.plans.plan(7, part.most), ledger, Random())
    role = registry.edge(definition, "edge-7", part.rows, model, releaser)
    # When
    (sent,) = role.on_message(GlobalModel(0, model.init(1), 1.0, definition.terms))
    # Then
    assert isinstance(sent.message, Push)
    assert [spend.sampling_rate for spend in ledger.history()] == [BATCH / 250]
    assert torch.isfinite(torch.tensor(releaser.plan.noise_variance(model.size)))


@pytest.mark.parametrize("rate", [BATCH / 250, BATCH / ROWS / 2, 1.0])
def test_a_server_with_other_terms_than_the_runs_gets_nothing(tmp_path: Path, rate: float) -> None:
    definition = member(tmp_path, 250).define()
    model = definition.build_model()
    part = definition.source.edge(7, None, tmp_path / "keep")
    ledger = Ledger(":memory:", "mine")
    releaser = Releaser(definition.plans.plan(7, part.most), ledger, Random())
    role = registry.edge(definition, "edge-7", part.rows, model, releaser)
    terms = Terms(definition.terms.mechanism, rate, definition.terms.noise_multiplier)
    assert role.on_message(GlobalModel(0, model.init(1), 1.0, terms)) == []
    assert "sampling_rate" in role.refusal
    assert not ledger.history()


def test_a_member_with_fewer_rows_than_a_batch_takes_no_part(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--rows 49: a batch of this run is 50"):
        member(tmp_path, 49)


def test_where_batches_are_parts_of_a_pass_the_rows_are_the_runs(tmp_path: Path) -> None:
    edge = {"kind": "tree sums", "batches": 8}
    text = federations_run(
        algorithm={
            "entry": "servers:Own",
            "name": None,
            "learning_rate": None,
            "steps_min": None,
            "edge": edge,
        },
        privacy={"batch": None, "pushes": 30, "noise_multiplier": None},
    )
    try:
        member(tmp_path, None, text)
    except ConfigError as error:
        pytest.fail(str(error))
    with pytest.raises(ConfigError, match="leave --rows out"):
        member(tmp_path, 250, text)


READER = """
class Rows:
    def __init__(self, folder):
        with open(f"{folder}/rows.txt") as lines:
            self.rows = [(float(line), int(float(line) > 0.5)) for line in lines]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        x, y = self.rows[number]
        return [x, 1 - x], y
"""


def test_a_members_own_code_may_give_the_rows_of_arrays(tmp_path: Path) -> None:
    # Given
    arrays = {
        "kind": "arrays", "target": None, "columns": None, "shape": [2], "low": 0, "high": 1,
        "classes": 2,
    }  # fmt: skip
    run = config.parse(federations_run(data=arrays), "run.toml", federation=True)
    (tmp_path / "site_reader.py").write_text(READER)
    (tmp_path / "rows.txt").write_text("\n".join(str(n / 300) for n in range(300)))
    # When
    site = Site(7, Path()).of("site_reader:Rows", tmp_path)
    read = config.read(config.as_tree(run), "offer", tmp_path / "files", site=site, own_code=False)
    definition = read.define()
    # Then
    assert definition.agreed == run.define().agreed
    rows = definition.source.edge(7, None, tmp_path / "keep").rows.for_edge(2)
    assert rows.records == 300


def test_a_table_lies_in_a_file(tmp_path: Path) -> None:
    run = config.parse(federations_run(), "run.toml", federation=True)
    site = Site(7, Path()).of("site_reader:Rows", tmp_path)
    read = config.read(config.as_tree(run), "offer", tmp_path, site=site, own_code=False)
    with pytest.raises(ConfigError, match="--data site_reader:Rows: gives arrays"):
        read.define()


def test_a_file_that_is_called_as_an_entry_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "a:b").write_text("")
    assert Site(7, Path()).of("a:b", tmp_path).reader is None
    assert Site(7, Path()).of("a.csv", tmp_path).data == tmp_path / "a.csv"


def test_published_data_is_dealt_by_the_members_number() -> None:
    data = {"kind": None, "dataset": "digits", "target": None, "rows": None, "columns": None}
    run = config.parse(federations_run(data=data), "run.toml", federation=True)
    tree = config.as_tree(run)
    member = config.read(tree, "offer", Path(), site=Site(1, Path()), own_code=False).define()
    assert member.fingerprint == run.define().fingerprint
    assert member.source.owned(1) is None
