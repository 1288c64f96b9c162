"""Steps of `features`: upright, a projection on a public basis; each record alone, to the bit."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tacit import config
from tacit.config import RunFile
from tacit.datasets.features import Features, apply, shape_with, upright
from tacit.datasets.features.axes import Axes
from tacit.datasets.features.public_basis import LENGTH, Projection, digest, says, shipped, write
from tacit.datasets.features.standardise import Standardise
from tacit.datasets.features.strokes import AXES, COUNT, SEED, SIDE, pictures, small
from tacit.errors import ConfigError, DataError
from tests.helpers.run_files import toml

STROKES = Projection(shipped("strokes"), digest(shipped("strokes")), 64, 0.5)
FULL: Features = ("upright", "scattering", STROKES)


def moments(image: Tensor) -> tuple[float, float, float]:
    """Return the centre of mass (row, column), from the middle, and the mixed second moment."""
    mass = image[0].double() / image.sum().double()
    rows = torch.arange(image.shape[1]).double()[:, None] - (image.shape[1] - 1) / 2
    columns = torch.arange(image.shape[2]).double() - (image.shape[2] - 1) / 2
    row, column = float((mass * rows).sum()), float((mass * columns).sum())
    return row, column, float((mass * (rows - row) * (columns - column)).sum())


@pytest.mark.parametrize("number", range(6))
def test_what_leans_stands_upright_in_the_middle(number: int) -> None:
    image = pictures(6, seed=3)[number]
    row, column, mixed = moments(upright.of_image(image))
    assert abs(row) < 0.3
    assert abs(column) < 0.3
    assert abs(mixed) < max(0.6, 0.12 * abs(moments(image)[2]))


def test_a_picture_of_nothing_stays_as_it_is() -> None:
    nothing = torch.zeros(1, 8, 8)
    assert torch.equal(upright.of_image(nothing), nothing)
    strange = torch.full((1, 8, 8), math.nan)
    assert upright.of_image(strange) is strange


def test_a_projection_is_what_its_formula_says(tmp_path: Path) -> None:
    mean, axes = torch.tensor([0.5, 0.0, 0.0]), torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    write(tmp_path / "b", mean, axes, torch.tensor([0.25, 0.0]), "two axes")
    step = Projection(tmp_path / "b", digest(tmp_path / "b"), 2, 0.5)
    projected = step.of_record(torch.tensor([3.0, 4.0, 0.0]))
    # u = (.6, .8, 0); v = (.8 · (.25 + 1e-5)^-.25, 0): of length 10 then
    assert projected.tolist() == pytest.approx([10.0, 0.0])
    both = step.of_record(torch.tensor([0.0, 3.0, 4.0]))
    scaled = [0.6 * (0.25 + 1e-5) ** -0.25, 0.8 * 1e-5**-0.25]
    assert both.tolist() == pytest.approx(
        [LENGTH * number / math.hypot(*scaled) for number in scaled], rel=1e-5
    )
    assert says(tmp_path / "b") == "two axes"


def test_every_record_has_the_same_public_length() -> None:
    features = apply(FULL, pictures(8, seed=5))
    assert features.shape == (8, 64)
    assert torch.allclose(features.norm(dim=1), torch.full((8,), LENGTH))
    nothing = apply((STROKES,), torch.zeros(1, 81, 7, 7))
    assert bool(torch.isfinite(nothing).all())
    assert float(nothing.norm()) <= LENGTH * 1.001


def test_public_bounds_are_brought_to_one() -> None:
    records = torch.tensor([[0.0, 5.0], [4.0, 10.0], [9.0, -1.0]])
    for_all = apply((Standardise((0.0,), (8.0,)),), records)
    assert for_all.tolist() == [[-1.0, 0.25], [0.0, 1.0], [1.0, -1.0]]
    for_each = apply((Standardise((0.0, 4.0), (4.0, 6.0)),), records[:2])
    assert for_each.tolist() == [[-1.0, 0.0], [1.0, 1.0]]
    with pytest.raises(ConfigError, match="low has 3 numbers, a record 2"):
        shape_with((Standardise((0.0,) * 3, (1.0,)),), (2,))


def test_neither_company_nor_place_changes_a_bit_of_a_record() -> None:
    steps = FULL
    records = pictures(12, seed=7)
    alone = torch.cat([apply(steps, record[None]) for record in records])
    chance = torch.Generator().manual_seed(1)
    for count in (2, 5, 12):
        order = torch.randperm(12, generator=chance)[:count]
        assert torch.equal(apply(steps, records[order]), alone[order])


def test_the_shipped_basis_is_small_and_what_its_generator_makes() -> None:
    path = shipped("strokes")
    assert path.stat().st_size <= 5_000_000
    assert says(path) == f"{COUNT} pictures of random strokes (seed {SEED}), upright, scattering"
    full = Projection(path, digest(path), AXES, 0.5)
    assert shape_with(("upright", "scattering", full), (1, SIDE, SIDE)) == (AXES,)
    first = pictures(2, SEED)
    assert first.sum().item() == pytest.approx(FIRST_PICTURES, abs=1e-2)


def test_the_basis_of_small_pictures_is_made_of_the_same_strokes() -> None:
    path = shipped("strokes-8")
    assert path.stat().st_size <= 100_000
    assert says(path) == f"{COUNT} pictures of random strokes (seed {SEED}), scattering"
    step = Projection(path, digest(path), 128, 0.5)
    assert shape_with(("scattering", step), (1, 8, 8)) == (128,)
    drawn = small(50, SEED)
    assert drawn.shape == (50, 1, 8, 8)
    assert torch.equal(drawn.amax((1, 2, 3)), torch.ones(50))
    axes = Axes()
    axes.see(apply(("scattering",), drawn))
    mean, _ = step._constants()
    assert torch.allclose(axes.found(1)[0].float(), mean, atol=0.02)


FIRST_PICTURES = 156.5997  # of two pictures, all grey values together


@pytest.mark.exhaustive
def test_the_generator_makes_the_shipped_basis_anew() -> None:
    axes = Axes()
    for block in torch.split(pictures(COUNT, SEED), 500):
        axes.see(apply(("upright", "scattering"), block))
    mean, computed, _ = axes.found(32)
    shipped_mean, shipped_axes = STROKES._constants()
    assert torch.allclose(mean.float(), shipped_mean, atol=1e-5)
    turned = (
        computed.float() @ torch.nn.functional.normalize(shipped_axes[:32], dim=1).T
    ).diagonal()
    assert float(turned.abs().min()) > 0.99


def test_axes_are_those_of_all_records_whatever_the_blocks() -> None:
    records = torch.randn(60, 2, 3, generator=torch.Generator().manual_seed(1))
    axes = Axes()
    for block in torch.split(records, 7):
        axes.see(block)
    mean, principal, variances = axes.found(3)
    flat = torch.nn.functional.normalize(records.flatten(1).double(), dim=1)
    spread = torch.cov(flat.T, correction=0)
    assert torch.allclose(mean, flat.mean(0))
    assert torch.allclose(principal @ spread @ principal.T, torch.diag(variances), atol=1e-12)
    assert torch.allclose(variances, torch.linalg.eigvalsh(spread).flip(0)[:3])
    with pytest.raises(DataError, match="--axes 7: 60 records of 6 numbers have fewer"):
        axes.found(7)


@pytest.mark.parametrize(
    ("shape", "axes", "message"),
    [
        ((81, 7, 8), 64, "is of 3969 numbers, here are 4536"),
        ((81, 7, 7), 513, "axes=513: strokes.safetensors has 512"),
    ],
)
def test_a_basis_that_does_not_fit_is_refused(
    shape: tuple[int, ...], axes: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        shape_with((Projection(STROKES.path, STROKES.sha256, axes, 0.5),), shape)


@pytest.mark.parametrize(
    ("axes", "variances", "message"),
    [
        (torch.eye(3)[:2], torch.tensor([1.0, torch.nan]), "shapes or numbers do not fit"),
        (torch.eye(3)[:2], torch.ones(3), "shapes or numbers do not fit"),
        (torch.eye(4)[:2], torch.ones(2), "shapes or numbers do not fit"),
        (torch.eye(3)[:2], torch.tensor([1.0, -1.0]), "has a variance below 0"),
    ],
)
def test_a_basis_of_no_sense_is_refused_before_it_costs_anything(
    tmp_path: Path, axes: Tensor, variances: Tensor, message: str
) -> None:
    path = tmp_path / "b"
    write(path, torch.zeros(3), axes, variances, "strange")
    with pytest.raises(DataError, match=message):
        Projection(path, digest(path), 2, 0.5).shape_of((3,))


def run(folder: Path, features: str) -> RunFile:
    text = toml(
        {"data": f"dataset = 'mnist'\nfeatures = {features}"},
        run={"updates": 5},
        algorithm={"name": "mapa"},
    )
    (folder / "run.toml").write_text(text, encoding="utf-8")
    return config.load(folder / "run.toml")


def test_a_run_definition_has_the_hash_of_its_basis(tmp_path: Path) -> None:
    path = tmp_path / "own.safetensors"
    mean, axes = torch.zeros(3969), torch.eye(3969)[:8]
    write(path, mean, axes, torch.ones(8), "eight axes")
    steps = '["scattering", { basis = "own.safetensors", axes = 8 }]'
    first = run(tmp_path, steps)
    assert first.source.shape == ((8,), 10)
    assert first.stated()["code"] == {"basis own.safetensors": digest(path)}
    stated, name = first.stated(), first.fingerprint()
    write(path, mean + 0.1, axes, torch.ones(8), "other axes")
    second = run(tmp_path, steps)
    assert stated != second.stated()
    assert name != second.fingerprint()
    with pytest.raises(ConfigError, match="is another one than the run definition says"):
        Projection(path, "0" * 64, 8, 0.5).shape_of((81, 7, 7))


def test_a_word_alone_means_what_it_meant(tmp_path: Path) -> None:
    alone, listed = run(tmp_path, '"scattering"'), run(tmp_path, '["scattering"]')
    assert alone.source.shape == listed.source.shape == ((81, 7, 7), 10)
    assert "code" not in alone.stated()


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ('["fourier"]', "data.features"),
        ('[{ basis = "none.safetensors" }]', "no such file"),
        ('[{ basis = "../strokes" }]', "leaves the run file's folder"),
        ("[]", "data.features"),
        ("[{ low = 1, high = 1 }]", "low=1: expected below high=1"),
        ("[{ low = [0, 3], high = [1, 2] }]", "low=3: expected below high=2"),
        ("[{ low = [0, 3], high = [1, 2, 3] }]", "expected as many of each, not 2, 3"),
        ("[{ low = [0, 1], high = 5 }]", "low has 2 numbers, a record 784"),
        ("[{ low = nan, high = 5 }]", "finite"),
        ('["scattering", { basis = "strokes", axes = 600 }]', "axes=600"),
    ],
)
def test_steps_that_cannot_be_are_refused(tmp_path: Path, features: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _ = run(tmp_path, features).source.shape
