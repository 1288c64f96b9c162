"""Metrics beside values that were computed by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tacit.datasets import Dataset
from tacit.datasets.target import Target
from tacit.errors import ConfigError
from tacit.models import build
from tacit.models.losses import bce_with_logits, mse
from tacit.models.metrics import METRICS, chosen, constant_errors
from tacit.models.model_contract import Model
from tacit.models.module import module_model

TWO, THREE = Target("classes", ("no", "yes")), Target("classes", ("a", "b", "c"))
DAYS = Target("number", low=10.0, span=100.0)


def linear(classes: int) -> Model:
    """Return a model that maps x (classes,) to itself, by the unit matrix."""
    return build("logistic", (classes,), classes)


def unit(classes: int) -> Tensor:
    return torch.cat((torch.eye(classes).flatten(), torch.zeros(classes)))


def measured(
    names: list[str], target: Target, scores: list[list[float]], y: list[int]
) -> dict[str, float]:
    classes = len(target.names)
    data = Dataset(torch.tensor(scores), torch.tensor(y), classes, "t/test")
    _, scores_by_name = chosen(names, target, Path()).measure(linear(classes), unit(classes), data)
    return scores_by_name


def test_accuracy_and_that_of_each_class() -> None:
    scores = [[2.0, 1.0, 0.0], [0.0, 1.0, 3.0], [5.0, 1.0, 0.0], [0.0, 9.0, 1.0]]
    metrics = measured(["accuracy", "per_class"], THREE, scores, [0, 1, 0, 1])
    # guesses are a, c, a, b: both of a are right, one of two of b; c has no example
    assert metrics == {"accuracy": 0.75, "accuracy of a": 1.0, "accuracy of b": 0.5}


def test_auc_counts_pairs_and_ties_by_half() -> None:
    scores = [[0.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 2.0]]
    assert measured(["auc"], TWO, scores, [0, 0, 1, 1]) == {"auc": pytest.approx(3.5 / 4)}
    # Odds count, not the second score: 5 - 4 is below 3 - 1.
    assert measured(["auc"], TWO, [[4.0, 5.0], [1.0, 3.0]], [0, 1]) == {"auc": 1.0}


def test_auc_of_three_classes_is_the_mean_of_each_against_the_rest() -> None:
    scores = [[9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 8.0, 7.0], [0.0, 0.0, 9.0]]
    # a against the rest: 1. b: row 1 above all: 1. c: rows 2 and 3 against 0 and 1: 1.
    assert measured(["auc"], THREE, scores, [0, 1, 2, 2]) == {"auc": pytest.approx(1.0)}
    # With rows 1 and 3 of c, and 2 of b: a 1; b above two of three; c 2 of 4 pairs, and a tie.
    metrics = measured(["auc"], THREE, scores, [0, 2, 1, 2])
    assert metrics == {"auc": pytest.approx((1 + 2 / 3 + 2.5 / 4) / 3)}


def test_average_precision_is_the_mean_over_the_class_of_what_is_named_with_it() -> None:
    scores = [[0.0, 3.0], [0.0, 2.0], [0.0, 2.0], [0.0, 1.0], [0.0, 0.0]]
    # Found at 1 of 1, then at 2 of 3 (a tie, named together), then at 3 of 4.
    measured_ = measured(["average_precision"], TWO, scores, [1, 0, 1, 1, 0])
    assert measured_ == {"average_precision": pytest.approx((1 + 2 / 3 + 3 / 4) / 3)}
    same = measured(["average_precision"], TWO, [[0.0, 0.0]] * 4, [1, 0, 0, 0])
    assert same == {"average_precision": 0.25}


def test_auc_of_one_class_alone_is_no_number() -> None:
    assert math.isnan(measured(["auc"], TWO, [[0.0, 1.0]], [1])["auc"])


def regression() -> tuple[Model, Tensor]:
    model = module_model(
        "t:net", lambda: torch.nn.Linear(1, 1, bias=False), shape=(1,), outputs=1, loss=mse
    )
    return model, torch.tensor([1.0])


def test_errors_are_in_the_unit_of_the_file() -> None:
    model, params = regression()
    data = Dataset(torch.tensor([[0.1], [0.5]]), torch.tensor([0.2, 0.2]), 0, "t/test")
    _, metrics = chosen((), DAYS, Path()).measure(model, params, data)
    # 20 for 30 days, and 60 for 30: √((100 + 900) / 2), (10 + 30) / 2
    assert metrics == {"rmse": pytest.approx(math.sqrt(500)), "mae": pytest.approx(20.0)}


def test_perplexity_is_the_exponential_of_a_words_mean_loss() -> None:
    model = build("lstm", (4,), 7, embedding=3, hidden=(5,))
    words = torch.randint(7, (6, 4), generator=torch.Generator().manual_seed(1))
    data = Dataset(words, words, 7, "t/test")
    params = torch.zeros(model.size)  # every word is as likely as any other
    evaluation, metrics = chosen((), Target("text"), Path()).measure(model, params, data)
    assert list(metrics) == ["accuracy", "perplexity"]
    assert metrics["perplexity"] == pytest.approx(7.0, rel=1e-5)
    assert evaluation.scores is None  # which would fill the memory


def test_one_output_for_two_classes_is_the_odds_of_the_second() -> None:
    model = module_model(
        "t:net",
        lambda: torch.nn.Linear(1, 1, bias=False),
        shape=(1,),
        outputs=1,
        labels=2,
        loss=bce_with_logits,
    )
    data = Dataset(torch.tensor([[-1.0], [2.0], [0.5]]), torch.tensor([0, 1, 0]), 2, "t/test")
    _, metrics = chosen((), TWO, Path()).measure(model, torch.tensor([1.0]), data)
    assert metrics == {"accuracy": pytest.approx(2 / 3), "auc": 1.0}


def test_what_fits_is_shown_where_nothing_is_said() -> None:
    many = [[float(place == row) for place in range(3)] for row in range(3)]
    assert list(measured([], THREE, many, [0, 1, 2])) == ["accuracy"]
    assert list(measured([], TWO, [[0.0, 1.0], [1.0, 0.0]], [1, 0])) == ["accuracy", "auc"]


@pytest.mark.parametrize(("name", "target"), [("rmse", TWO), ("auc", DAYS), ("accuracy", DAYS)])
def test_a_metric_that_does_not_fit_is_refused(name: str, target: Target) -> None:
    assert name in METRICS
    with pytest.raises(ConfigError, match=rf"evaluation\.metrics={name}: does not fit"):
        chosen([name], target, Path())


class TestOwn:
    """A user's own metric."""

    def written(self, folder: Path, body: str) -> Path:
        (folder / "costs.py").write_text(f"def cost(scores, y):\n    {body}\n", encoding="utf-8")
        return folder

    def test_it_gets_scores_and_targets_in_the_unit_of_the_file(self, tmp_path: Path) -> None:
        model, params = regression()
        data = Dataset(torch.tensor([[0.1], [0.5]]), torch.tensor([0.2, 0.2]), 0, "t/test")
        folder = self.written(tmp_path, "return (scores - y).max()")
        _, metrics = chosen(["costs:cost", "mae"], DAYS, folder).measure(model, params, data)
        assert metrics == {"cost": pytest.approx(30.0), "mae": pytest.approx(20.0)}

    @pytest.mark.parametrize("body", ["return scores", "return None", "1 / 0"])
    def test_what_is_no_number_is_one_line(self, tmp_path: Path, body: str) -> None:
        measure = chosen(["costs:cost"], TWO, self.written(tmp_path, body))
        data = Dataset(torch.zeros(3, 2), torch.tensor([0, 1, 1]), 2, "t/test")
        with pytest.raises(ConfigError, match=r"costs:cost: .* it must return a number"):
            measure.measure(linear(2), unit(2), data)

    def test_one_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"evaluation\.metrics=costs:cost"):
            chosen(["costs:cost"], TWO, tmp_path)


def test_a_constants_errors_are_in_the_unit_of_the_file() -> None:
    y = torch.tensor([0.0, 0.0, 0.0, 0.4])  # 10, 10, 10 and 50 days: mean 20, median 10
    errors = constant_errors(y, DAYS)
    assert errors["rmse"] == pytest.approx(300**0.5)
    assert errors["mae"] == pytest.approx(10.0)
    assert constant_errors(torch.tensor([0, 1]), TWO) == {}
