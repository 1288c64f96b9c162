"""The edge side of MAPA's Algorithm 1, line by line, and the paper's own clipping and noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.algorithms.mapa.mapa import WAYS
from tacit.datasets import Dataset
from tacit.models import Model, build
from tacit.models.vectors import example_gradients, mean_gradient
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum import slots
from tacit.privacy.private_sum.plain import Plain
from tacit.privacy.release import Plan, Releaser
from tacit.protocol.messages import SERVER, GlobalModel, Halt, Hello, Push, Retired
from tests.helpers.private_sums import sum_of

MODEL = build("logistic", (1, 1, 3), 2)
SIZE = MODEL.size  # 8


# -- Algorithm 1, edge side ------------------------------------------------------------------------

X = torch.randn(40, 1, 1, 3, generator=torch.Generator().manual_seed(1))
DATA = Dataset(X, torch.arange(40) % 2, 2, "test")
PARAMS = torch.linspace(-1, 1, SIZE)


def plan(
    mechanism: Any = "gaussian", *, q: float = 0.25, batch: float = 10.0, z: float = 1.0
) -> Plan:
    return Plan(mechanism, q, batch, z, 0.1, 100.0, 2.0, 1e-5, rows_max=400)


def edge(
    privacy_plan: Plan,
    data: Dataset = DATA,
    seed: int | None = 1,
    model: Model = MODEL,
    *,
    rows_alone: bool = True,
) -> GradientEdge:
    releaser = Releaser(privacy_plan, Ledger(":memory:", "data"), Random(seed))
    rows = sum_of(data, model, releaser, rows_alone=rows_alone, ways=WAYS)
    return GradientEdge("a", model, releaser, rows)


def push(role: GradientEdge, clip: float = 1.0, version: int = 7) -> Push:
    (sent,) = role.on_message(GlobalModel(version, PARAMS, clip))
    assert sent.to == SERVER
    assert isinstance(sent.message, Push)
    return sent.message


def test_edge_line_1_says_epsilon_and_what_the_server_plans_with() -> None:
    role = edge(plan(z=1.5))
    (hello,) = role.start()
    assert hello.to == SERVER
    assert hello.message == Hello(
        "a", 2.0, 1e-5, "gaussian", SIZE * (1.5 / 10) ** 2, 0.1, 100.0, ()
    )


def test_edge_line_2_no_push_after_halt() -> None:
    role = edge(plan())
    assert role.on_message(Halt(3, "")) == []
    assert role.halted
    assert role.on_message(GlobalModel(3, PARAMS, 1.0)) == []
    assert role.releaser.ledger.history() == ()


def test_edge_lines_3_and_8_the_push_names_its_model_and_clip_norm() -> None:
    sent = push(edge(plan()), clip=2.5, version=12)
    assert (sent.edge, sent.base_version, sent.released.clip) == ("a", 12, 2.5)
    assert sent.released.vector.shape == (SIZE,)


def test_edge_lines_4_and_5_a_clipped_sum_over_the_batch_by_hand() -> None:
    gradients = example_gradients(MODEL, PARAMS, DATA.x, DATA.y)
    norms = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
    clip = float(norms.median())
    total = (gradients * (clip / norms).clamp(max=1)).sum(0)
    sent = push(edge(plan(q=1.0, batch=40.0, z=1e-4)), clip)
    assert torch.allclose(sent.released.vector, total / 40, atol=1e-4 * clip)


def test_edge_lines_6_and_7_the_noise_has_the_planned_size_on_every_coordinate() -> None:
    role = edge(plan(q=1.0, batch=10.0, z=2.0))
    vectors = torch.stack([push(role, clip=3.0).released.vector for _ in range(600)])
    assert torch.allclose(vectors.std(0), torch.full((SIZE,), 2.0 * 3.0 / 10), rtol=0.15)


def test_an_empty_batch_still_pushes_pure_noise() -> None:
    role = edge(plan(q=1e-9, batch=10.0, z=1.0))
    vectors = torch.stack([push(role).released.vector for _ in range(400)])
    assert float(vectors.std()) == pytest.approx(0.1, rel=0.1)
    assert float(vectors.mean()) == pytest.approx(0.0, abs=0.01)


def test_the_sum_is_divided_by_the_public_batch_size_not_by_the_drawn_one() -> None:
    alike = Dataset(DATA.x[:1].expand(40, 1, 1, 3), DATA.y[:1].expand(40), 2, "test")
    role = edge(plan(q=0.25, batch=10.0, z=1e-4), alike)
    drawn = [
        float(push(role, clip=0.1).released.vector.norm()) * 10 / 0.1 for _ in range(30)
    ]  # |B|, each row is C
    assert all(abs(size - round(size)) < 0.01 for size in drawn)
    assert len({round(size) for size in drawn}) > 3


@pytest.mark.parametrize(
    ("mechanism", "work"),
    [("gaussian", "linear_factors"), ("discrete_gaussian", "example_gradients")],
)
def test_the_batch_has_one_shape_whatever_is_drawn(
    mechanism: str, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes, real = set(), getattr(slots, work)

    def recorded(model: Model, params: Tensor, x: Tensor, y: Tensor) -> Any:
        shapes.add((tuple(x.shape), tuple(y.shape)))
        return real(model, params, x, y)

    monkeypatch.setattr(slots, work, recorded)
    role = edge(plan(mechanism, q=0.3), rows_alone=False)
    for _ in range(30):
        push(role)
    size = role.releaser.plan.slots
    assert shapes == {((size, 1, 1, 3), (size,))}


def test_an_edge_whose_budget_is_spent_retires_with_its_history() -> None:
    role = edge(plan(q=0.25, z=4.0), seed=None)
    assert role.releaser.releases_left is not None
    role.releaser.releases_left = 1
    spent = push(role).released.spent
    (retired,) = role.on_message(GlobalModel(8, PARAMS, 1.0))
    assert retired.to == SERVER
    assert isinstance(retired.message, Retired)
    assert retired.message == Retired(
        "a", retired.message.reason, spent, role.releaser.ledger.charged()
    )
    assert "budget" in retired.message.reason


def chosen(monkeypatch: pytest.MonkeyPatch, role: GradientEdge) -> list[Tensor]:
    """Return the list that receives the rows drawn by the modes without privacy."""
    rows: list[Tensor] = []
    plain = role.private_sum
    assert isinstance(plain, Plain)
    draw: Callable[[int], Tensor] = plain.with_replacement

    def recorded(count: int) -> Tensor:
        rows.append(draw(count))
        return rows[-1]

    monkeypatch.setattr(plain, "with_replacement", recorded)
    return rows


def test_without_noise_the_push_is_the_exact_mean_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    role = edge(plan("none", z=0.0))
    rows = chosen(monkeypatch, role)
    sent = push(role, clip=1e-6)  # nothing is clipped
    assert len(rows[0]) == 10
    assert torch.equal(
        sent.released.vector, mean_gradient(MODEL, PARAMS, DATA.x[rows[0]], DATA.y[rows[0]])
    )


def test_paper_mode_clips_the_mean_and_not_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = Plan("paper", 0.25, 10.0, 0.0, 0.1, 100.0, 2.0, 1e-5, paper_epsilon=1e9)
    role = edge(quiet)
    rows = chosen(monkeypatch, role)
    for clip in (1e-2, 100.0):
        sent = push(role, clip)
        mean = mean_gradient(MODEL, PARAMS, DATA.x[rows[-1]], DATA.y[rows[-1]])
        expected = mean / max(1.0, float(mean.norm()) / clip)
        assert torch.allclose(sent.released.vector, expected, atol=1e-6)
    assert float(mean.norm()) < 100  # the second one was not clipped


def test_paper_mode_adds_its_noise_to_the_first_layer_only(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("cnn", (1, 4, 4), 2, channels=(2,), kernel=3)
    x = torch.randn(12, 1, 4, 4, generator=torch.Generator().manual_seed(2))
    role = edge(plan("paper", z=0.0), Dataset(x, torch.arange(12) % 2, 2, "test"), model=model)
    rows = chosen(monkeypatch, role)
    params = model.init(1)
    (out,) = role.on_message(GlobalModel(0, params, 1e6))
    assert isinstance(out.message, Push)
    sent = out.message.released.vector
    mean = mean_gradient(model, params, x[rows[0]], (torch.arange(12) % 2)[rows[0]])
    differs = (sent - mean).abs() > 1e-6
    assert bool(differs[model.first_layer].all())
    assert not bool(differs[model.first_layer.stop :].any())
