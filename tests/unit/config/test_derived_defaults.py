"""Run files with the required keys alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tacit_services.testbed import simulated_run

from tacit import config
from tacit.config.algorithm_entries import BUILT_IN
from tacit.config.preflight import warnings
from tacit.errors import ConfigError
from tests.helpers.nightly import nightly

PRIVATE = ("mapa", "audp", "fedasync", "fedavg", "fedbuff", "dp-pasgd", "adp2sgd", "sync")
PLAIN = ("asgd", "csgd", "adpsgd", "sgd")
VERTICAL = ("vafl",)  # private only by `gaussian`, so that a mechanism is a required key of it
ALL = (*PRIVATE, *PLAIN, *VERTICAL)
QUICK = ("mapa", "asgd", "vafl")
UPDATES = {"fedavg": 100, "fedbuff": 100, "dp-pasgd": 100}  # rounds and buffers, of 5 and 10


def required(name: str, dataset: str = "digits", more: str = "") -> str:
    """Return a run file of the required keys."""
    private = "" if name in PRIVATE else '[privacy]\nmechanism = "none"\n'
    alone = "[edges]\ncount = 1\n" if name in ("csgd", "sgd") else ""
    return (
        f'[run]\nupdates = {UPDATES.get(name, 1000)}\n[data]\ndataset = "{dataset}"\n'
        f'[model]\nname = "logistic"\n[algorithm]\nname = "{name}"\n{private}{alone}{more}'
    )


@pytest.mark.parametrize(
    ("name", "more", "pushes", "clip"),
    [
        ("mapa", "", 220, None),  # a fifth of 1,000, and a tenth; C by eq. (12)
        ("audp", "", 220, 2.0),
        ("fedasync", "", 1100, 2.0),  # tasks of five local steps
        ("fedavg", "", 550, 2.0),  # each edge is in every one of 100 rounds
        ("fedbuff", "", 1100, 2.0),  # ten updates to a buffer
        ("dp-pasgd", "", 1100, 2.0),  # ten local steps a round
        ("adp2sgd", "", 220, 2.0),
        ("sync", "", 220, 2.0),
        ("mapa", "[privacy]\npushes = 7\nclip = 3.0", 7, 3.0),
        ("fedasync", "[privacy]\nclip_max = 1.5", 1100, 1.5),
        ("fedasync", "[privacy]\nnoise_multiplier = 1.0", 1000, 2.0),  # not calibrated
    ],
)
def test_pushes_and_clip_follow_from_the_other_sections(
    name: str, more: str, pushes: int, clip: float | None
) -> None:
    privacy = config.parse(required(name, more=more), "test").privacy
    assert (privacy.pushes, privacy.clip) == (pushes, clip)


@pytest.mark.parametrize(("batch", "records"), [(0.25, 71), (0.999, 286), (0.001, 1), (1, 1)])
def test_a_batch_below_one_is_a_part_of_an_edges_rows(batch: float, records: int) -> None:
    """The digits have 287 rows an edge."""
    run = config.parse(required("audp", more=f"[privacy]\nbatch = {batch}"), "test")
    assert run.privacy.batch == records
    assert run.plan(0).sampling_rate == records / 287
    again = config.RunFile.model_validate(run.model_dump(), context={"folder": run.folder})
    assert again.fingerprint() == run.fingerprint()
    stated = config.parse(required("audp", more=f"[privacy]\nbatch = {records}"), "test")
    assert stated.fingerprint() == run.fingerprint()


@pytest.mark.parametrize("batch", [0, -0.5])
def test_no_part_of_the_rows_is_refused(batch: float) -> None:
    with pytest.raises(ConfigError, match=r"privacy\.batch"):
        config.parse(required("audp", more=f"[privacy]\nbatch = {batch}"), "test")


def test_more_pushes_than_a_file_may_name_are_refused_by_their_name() -> None:
    text = required("fedasync").replace("updates = 1000", f"updates = {2**53}")
    with pytest.raises(ConfigError, match=rf"privacy\.pushes=\d+: .* equal to {2**53}$"):
        config.parse(text, "test")


def test_audp_takes_eq_12_from_whom_gives_its_numbers() -> None:
    text = required("audp").replace("[algorithm]", "[algorithm]\ndeviation = 30.0")
    assert config.parse(text, "test").privacy.clip is None


def test_a_file_that_says_them_is_called_the_same() -> None:
    stated = required("fedasync", more="[privacy]\npushes = 1100\nclip = 2.0\n")
    left_out = config.parse(required("fedasync"), "b")
    assert config.parse(stated, "a").fingerprint() == left_out.fingerprint()


def learnt(text: str, folder: Path, root: Path | None) -> dict[str, float]:
    """Return the metrics on the test set at the end of a run that drew no warning before."""
    run = config.parse(text, "test")
    notes = "; ".join(warnings(run.define(), run.build_model().size))
    assert "drowns" not in notes, notes
    folder.mkdir()
    simulated = simulated_run.simulate(run.define(), root, folder, lambda run_status: None)
    assert simulated.state == "finished"
    return metrics(folder)


def metrics(folder: Path) -> dict[str, float]:
    """Read the metrics of the summary in `folder`."""
    scores: dict[str, float] = json.loads((folder / "summary.json").read_text())["metrics"]
    return scores


def test_every_name_is_tried() -> None:
    # ask learns nothing, and two have models of their own: tests/unit/algorithms
    assert {*PRIVATE, *PLAIN, *VERTICAL, "ask", "least-squares", "ebm"} == set(BUILT_IN)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, *nightly(*(name for name in ALL if name not in QUICK))])
def test_required_keys_alone_learn_the_digits(name: str, tmp_path: Path) -> None:
    constant = 0.104  # the commonest digit's part of the test set
    assert learnt(required(name), tmp_path / "out", None)["accuracy"] >= constant + 0.1


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [*PRIVATE, *PLAIN, *VERTICAL])
def test_required_keys_alone_learn_clothes_and_credit(
    name: str, tmp_path: Path, data_root: Path | None
) -> None:
    clothes = learnt(required(name, "fashion-mnist"), tmp_path / "a", data_root)
    assert clothes["accuracy"] >= 0.1 + 0.1
    text = required(name, "credit-default")
    if name == "vafl":  # which says before the start what two classes need
        with pytest.raises(ConfigError, match=r"width = 10 must be the 2 classes"):
            learnt(text, tmp_path / "b", data_root)
        text = text.replace('name = "vafl"', 'name = "vafl"\nwidth = 2')
    assert learnt(text, tmp_path / "c", data_root)["auc"] >= 0.65


def test_what_cannot_be_private_says_what_to_write() -> None:
    text = required("vafl").replace('[privacy]\nmechanism = "none"\n', "")
    with pytest.raises(ConfigError, match=r"vafl knows gaussian, none and paper"):
        config.parse(text, "test")
