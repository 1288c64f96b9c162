"""Tables and CIFAR-10: rows checked by hand, and constants that no private row has changed."""

from __future__ import annotations

import hashlib
import math
import os
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch

from tacit.datasets import Dataset, available, group_count, load, load_groups, party_columns
from tacit.datasets.benchmarks.tables import held_out
from tacit.errors import DataError
from tacit.models import build, evaluate
from tacit.models.vectors import mean_gradient

ROOT = Path(os.environ.get("TACIT_DATA", Path(__file__).parents[4] / "shared" / "data"))
CATEGORIES = (
    9,
    16,
    7,
    15,
    6,
    5,
    2,
    42,
)  # workclass, education, marital, occupation, relationship, race, sex, country


def split(name: str, half: str) -> Dataset:
    """Load a half of a real dataset, or skip the test."""
    if not available(name, ROOT):
        pytest.skip(f"{name} is not in {ROOT}; set TACIT_DATA")
    return load(name, half, ROOT)  # type: ignore[arg-type]


@pytest.mark.parametrize("half", ["train", "test"])
def test_cifar10_is_the_published_pixels(half: str) -> None:
    """Compare the digests of the decoded bytes with those in the data folder's README.md."""
    data = split("cifar10", half)
    pixels = (data.x * 255).round().to(torch.uint8)
    digest = {
        "train": "cbfa874ee5b1cb13f2d64a39ab593b610192089d1d44bd0d0280daf0097ebea5",
        "test": "1ee3dd0a6ea505c295f5aee63bbf65c7c6cc933ffdb3805bb673098521512f58",
    }
    assert hashlib.sha256(pixels.numpy().tobytes()).hexdigest() == digest[half]
    assert set(data.y.bincount().tolist()) == {len(data) // 10}


def test_the_first_adult_is_who_the_file_says() -> None:
    """Look up the first person of the file.

    39, State-gov, Bachelors, Never-married, Adm-clerical, Not-in-family, White, Male,
    United-States, <=50K.
    """
    data = split("adult", "train")
    columns = data.x[0].nonzero().flatten()
    starts = np.cumsum((0, *CATEGORIES[:-1]))
    assert (columns - torch.from_numpy(starts)).tolist() == [5, 0, 2, 8, 3, 0, 1, 0]
    assert data.y[:8].tolist() == [0, 0, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("half", "rows", "above"), [("train", 32_561, 7841), ("test", 16_281, 3846)]
)
def test_every_adult_has_one_value_of_each_category(half: str, rows: int, above: int) -> None:
    data = split("adult", half)
    assert (data.x.shape, int(data.y.sum())) == ((rows, sum(CATEGORIES)), above)
    for block in torch.split(data.x, list(CATEGORIES), dim=1):
        assert torch.equal(block.sum(1), torch.ones(rows))
        assert bool(((block == 0) | (block == 1)).all())


def test_adult_groups_are_the_sixteen_educations() -> None:
    data = split("adult", "train")
    assert data.groups is not None
    # Bachelors, Some-college, 11th, HS-grad, ... Preschool, as adult.names lists them; the counts
    # are the file's.
    assert data.groups.bincount().tolist() == [
        5355,
        7291,
        1175,
        10501,
        576,
        1067,
        1382,
        514,
        646,
        433,
        1723,
        168,
        933,
        413,
        333,
        51,
    ]
    assert torch.equal(data.groups, data.x[:, 9:25].argmax(1))
    assert torch.equal(load_groups("adult", "train", ROOT), data.groups)
    assert group_count("adult") == 16


def test_vehicle_holds_out_a_fixed_fifth_of_every_sensor() -> None:
    train, test = split("vehicle", "train"), split("vehicle", "test")
    assert train.groups is not None
    assert test.groups is not None
    test_rows = test.groups.bincount(minlength=23)
    rows = train.groups.bincount(minlength=23) + test_rows
    assert rows.tolist() == [
        59,
        8,
        20,
        156,
        17,
        13,
        43,
        25,
        71,
        388,
        21,
        13,
        534,
        84,
        147,
        36,
        7,
        13,
        15,
        130,
        20,
        30,
        10,
    ]
    assert torch.equal(test_rows, rows // 5)
    assert {tuple(row) for row in train.x.tolist()}.isdisjoint(
        {tuple(row) for row in test.x.tolist()}
    )
    # Recorded: a split that moved would let training rows be tested on.
    assert [round(value, 4) for value in train.x[0, :4].tolist()] == [0.2876, 2.1396, 0.583, 0.6593]
    assert [round(value, 4) for value in test.x[0, :4].tolist()] == [
        -0.2865,
        -0.6533,
        -0.5209,
        -0.6096,
    ]


def test_a_subject_is_the_mean_of_three_scaled_recordings() -> None:
    """Look up subject 0 in the columns gender, PPE, DFA and RPDE.

    There are three recordings, with the centre and spread of pd_speech.csv.
    """
    train, test = split("pd-speech", "train"), split("pd-speech", "test")
    recordings = np.array(
        [
            [1, 0.85247, 0.71826, 0.57227],
            [1, 0.76686, 0.69481, 0.53966],
            [1, 0.85083, 0.67604, 0.58982],
        ]
    )
    centre, spread = np.array([0, 0.81, 0.7, 0.48]), np.array([1, 0.071, 0.11, 0.2])
    expected = ((recordings - centre) / spread).mean(0)
    assert train.ids is not None
    assert test.ids is not None
    assert train.ids[0] == 0
    assert np.allclose(train.x[0, :4].numpy(), expected, atol=1e-6)
    assert (float(train.x.abs().max()), len(test)) == (5, 49)
    assert sorted((*train.ids.tolist(), *test.ids.tolist())) == list(
        range(252)
    )  # nobody is on both sides
    assert int(train.y.sum() + test.y.sum()) == 188


def test_a_scale_of_every_speech_column_is_a_constant_of_the_source() -> None:
    """Not recomputed: the file's digest, and what it says of a few columns."""
    text = (
        resources.files("tacit.datasets.benchmarks")
        .joinpath("pd_speech.csv")
        .read_text(encoding="utf-8")
    )
    rows = [line.split(",") for line in text.splitlines() if not line.startswith("#")]
    assert rows[:4] == [
        ["column", "centre", "spread"],
        ["gender", "0", "1"],
        ["PPE", "0.81", "0.071"],
        ["DFA", "0.7", "0.11"],
    ]
    assert len(rows) == 1 + 753
    assert all(float(spread) > 0 for _, _, spread in rows[1:])


def test_the_first_client_is_what_the_file_says() -> None:
    """Look up ID 1.

    limit 20000, sex 2, education 2, marriage 1, age 24, pay 2 2 -1 -1 -2 -2, bills 3913 3102 689 0
    0 0, ...
    """
    train, test = split("credit-default", "train"), split("credit-default", "test")
    assert train.ids is not None
    assert test.ids is not None
    assert train.ids[0] == 1
    assert sorted((*train.ids.tolist(), *test.ids.tolist())) == list(range(1, 30_001))
    plain = [2 / 2, 2 / 4, 1 / 3, 24 / 100, 2 / 9, 2 / 9, -1 / 9, -1 / 9, -2 / 9, -2 / 9]
    money = [
        math.log10(1 + value) / 6 for value in (20000, 3913, 3102, 689, 0, 0, 0, 0, 689, 0, 0, 0, 0)
    ]
    assert torch.allclose(train.x[0], torch.tensor([money[0], *plain, *money[1:]]), atol=1e-6)
    assert int(train.y.sum() + test.y.sum()) == 6636
    assert float(train.x.abs().max()) < 1.6


def test_a_debt_below_zero_keeps_its_sign() -> None:
    train = split("credit-default", "train")
    bills = train.x[:, 11:17]
    assert float(bills.min()) == pytest.approx(-math.log10(1 + 339_603) / 6)


def test_breast_cancer_has_the_guests_columns_first() -> None:
    train, test = split("breast-vfl", "train"), split("breast-vfl", "test")
    assert train.ids is not None
    assert test.ids is not None
    assert train.ids[:2].tolist() == [133, 273]
    assert torch.allclose(
        train.x[0, [0, 9, 10, 29]], torch.tensor([0.254879, -0.733474, 0.449512, -0.554102])
    )
    assert (int(train.y.sum() + test.y.sum()), len({*train.ids.tolist(), *test.ids.tolist()})) == (
        357,
        569,
    )
    assert party_columns("breast-vfl") == (10, 20)


@pytest.mark.parametrize(
    ("name", "penalty", "least"),
    [("pd-speech", 1.0, 0.76), ("credit-default", 0.0, 0.79), ("breast-vfl", 1e-2, 0.93)],
)
def test_a_linear_model_learns_the_table(name: str, penalty: float, least: float) -> None:
    """Better on held-out rows than the frequencies of the classes, by loss and by accuracy."""
    train, test = split(name, "train"), split(name, "test")
    model = build("logistic", tuple(train.x.shape[1:]), 2, regularization=penalty)
    params = model.init(1).requires_grad_()
    optimizer = torch.optim.Adam([params], lr=0.01 if name == "pd-speech" else 0.05)
    for _ in range(150):
        params.grad = mean_gradient(model, params, train.x, train.y)
        optimizer.step()
    accuracy, loss = evaluate(model, params, test)
    shares = test.y.bincount() / len(test)
    assert least > float(shares.max())
    assert accuracy > least
    assert loss < -float((shares * shares.log()).sum()) - 0.03


@pytest.mark.parametrize("half", ["train", "test"])
def test_held_out_rows_depend_on_the_groups_alone(half: str) -> None:
    groups = np.repeat([3, 1, 8], [11, 4, 5])
    np.random.seed(1)
    first = held_out(groups, half)  # type: ignore[arg-type]
    np.random.seed(2)
    assert first.tolist() == held_out(groups, half).tolist()  # type: ignore[arg-type]
    both = np.concatenate([held_out(groups, "train"), held_out(groups, "test")])
    assert sorted(both.tolist()) == list(range(20))
    assert np.bincount(groups[held_out(groups, "test")], minlength=9)[[3, 1, 8]].tolist() == [
        2,
        0,
        1,
    ]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("adult", "adult/adult.names.gz"),
        ("vehicle", "vehicle/mytrain.json.gz"),
        ("breast-vfl", "breast-vfl/breast_hetero_host.csv"),
        ("pd-speech", "pd-speech/pd_speech_features.csv.gz"),
        ("credit-default", "credit-default/UCI_Credit_Card.csv.gz"),
        ("wikitext-2", "wikitext-2/train.txt.gz"),
    ],
)
def test_an_altered_table_is_refused(tmp_path: Path, name: str, file: str) -> None:
    split(name, "train")
    for source in (ROOT / name).iterdir():
        target = tmp_path / name / source.name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(source.read_bytes())
    content = bytearray((tmp_path / file).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / file).write_bytes(content)
    assert available(name, tmp_path)  # it looks at presence only
    with pytest.raises(DataError, match=rf"{Path(file).name} is not the published file"):
        load(name, "train", tmp_path)
