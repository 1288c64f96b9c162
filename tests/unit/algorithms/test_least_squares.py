"""Least squares: the right head without noise, a ridge by the noise, each edge once."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tacit import config
from tacit.algorithms import registry
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.least_squares.least_squares import LeastSquaresServer
from tacit.algorithms.least_squares.ridge_solution import noise_ridge, solution, unpacked
from tacit.config.definition import Definition
from tacit.datasets.edge_rows import EdgeRows
from tacit.errors import ConfigError
from tacit.models.zoo.linear import linear
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.moment_sums import packed
from tacit.privacy.release import Releaser
from tacit.protocol.messages import GlobalModel, Hello, Push, Retired
from tacit.simulation.client_server import received

RUN = """
data.dataset = "digits"
algorithm.name = "least-squares"
edges.count = 3
privacy.epsilon = 4.0
"""
NO_NOISE = RUN.replace("privacy.epsilon = 4.0", 'privacy.mechanism = "none"')


def defined(text: str = RUN) -> Definition[Any]:
    return config.parse(text, "run.toml").define()


def pushed(
    definition: Definition[Any], server: ServerRole, name: str, rows: EdgeRows, seed: int
) -> Push:
    """Return the edge's push, which the server has not been given."""
    plan = definition.plans.named(name)
    releaser = Releaser(plan, Ledger(":memory:", name), Random(seed))
    model = definition.build_model()
    edge = registry.edge(definition, name, rows, model, releaser)
    for out in edge.start():
        assert isinstance(out.message, Hello)
        server.on_message(out.message)
    (out,) = edge.on_message(server.global_model())
    assert isinstance(out.message, Push)
    return out.message


def digits(definition: Definition[Any], number: int) -> EdgeRows:
    part = definition.source.edge(number, None, definition.folder)
    return part.rows.for_edge(10)


def answered(definition: Definition[Any], edges: range = range(3)) -> LeastSquaresServer:
    """Return the server of a run that these edges have answered."""
    server = registry.server(definition, definition.build_model())
    assert isinstance(server, LeastSquaresServer)
    for number in edges:
        push = pushed(definition, server, f"edge-{number}", digits(definition, number), number)
        server.on_message(received(push))
    return server


def test_four_lines_of_a_run_file_are_enough() -> None:
    definition = defined()
    assert (definition.run.updates, definition.model.name) == (3, "linear")
    plan = definition.plans.default
    assert (plan.sampling_rate, plan.clip_min <= 1 <= plan.clip_max) == (1.0, True)
    assert definition.build_model().name == "logistic"


def test_without_noise_it_is_least_squares_of_rows_of_length_one() -> None:
    definition = defined(NO_NOISE)
    server = answered(definition)
    rows = [digits(definition, number) for number in range(3)]
    x = torch.cat([each.x[:-1] for each in rows]).flatten(1).double()
    y = torch.cat([each.y[:-1] for each in rows])
    u = torch.cat([x, torch.ones(len(x), 1)], dim=1)
    u = u / u.norm(dim=1, keepdim=True)
    t = torch.nn.functional.one_hot(y, 10).double() - 0.1
    best = torch.linalg.lstsq(u, t, driver="gelsd").solution
    ours = u @ torch.cat([server.params[:640].view(10, 64).T, server.params[640:][None]]).double()
    theirs = u @ best
    share = float((ours * theirs).sum() / (ours.norm() * theirs.norm()))
    assert share > 0.9999
    assert server.halted


def test_of_a_number_it_finds_the_line_whatever_the_rows_lengths() -> None:
    chance = torch.Generator().manual_seed(1)
    x = 5 * torch.rand(4000, 3, generator=chance)
    y = (0.1 + x @ torch.tensor([0.03, -0.01, 0.1])).clamp(0, 1)
    definition = defined(NO_NOISE.replace("edges.count = 3", "edges.count = 1"))
    server = LeastSquaresServer(definition, linear((3,)))
    data = EdgeRows(torch.cat([x, torch.zeros(1, 3)]), torch.cat([y, torch.zeros(1)]))
    releaser = Releaser(definition.plans.named("edge-0"), Ledger(":memory:", "t"), Random(1))
    edge = registry.edge(definition, "edge-0", data, linear((3,)), releaser)
    for out in edge.start():
        server.on_message(out.message)  # type: ignore[arg-type]
    (out,) = edge.on_message(server.global_model())
    server.on_message(received(out.message))
    assert torch.allclose(server.params, torch.tensor([0.03, -0.01, 0.1, 0.1]), atol=2e-3)


def test_an_edge_that_comes_later_improves_the_model() -> None:
    definition = defined()
    test = definition.source.test(None)
    assert test is not None
    model = definition.build_model()

    def right(server: LeastSquaresServer) -> float:
        guessed = model.logits(server.params, test.x).argmax(dim=1)
        return float((guessed == test.y).double().mean())

    alone, together = right(answered(definition, range(1))), right(answered(definition))
    assert alone > 0.6
    assert together > alone + 0.02


def test_the_order_in_which_edges_come_does_not_matter() -> None:
    definition = defined()
    servers = []
    for order in ((0, 1, 2), (2, 0, 1)):
        server = registry.server(definition, definition.build_model())
        for number in order:
            push = pushed(definition, server, f"edge-{number}", digits(definition, number), number)
            server.on_message(received(push))
        servers.append(server.params)
    first, second = servers
    assert torch.allclose(first, second, rtol=1e-4, atol=1e-4)


def test_an_edges_answer_counts_once() -> None:
    definition = defined()
    server = answered(definition, range(1))
    before = server.params
    push = pushed(definition, server, "edge-0", digits(definition, 0), 9)
    server.on_message(received(push))
    assert server.version == 1
    assert torch.equal(server.params, before)
    assert server.stale == 1


def test_it_goes_on_from_its_state_to_the_same_bits() -> None:
    definition = defined()
    whole = answered(definition)
    first = answered(definition, range(2))
    later = registry.server(definition, definition.build_model())
    later.restore(*first.state())
    push = pushed(definition, later, "edge-2", digits(definition, 2), 2)
    later.on_message(received(push))
    assert torch.equal(whole.params, later.params)


def test_the_ridge_follows_the_noise_and_nothing_else() -> None:
    generator = torch.Generator().manual_seed(1)
    size, deviation = 200, 3.0
    half = deviation * torch.randn(size, size, generator=generator, dtype=torch.float64)
    symmetric = torch.triu(half, 1) + torch.triu(half, 1).T
    symmetric += math.sqrt(2) * torch.diag(half.diagonal())
    largest = float(torch.linalg.eigvalsh(symmetric).abs().max())
    assert noise_ridge(deviation, size, 1.0) == pytest.approx(largest, rel=0.1)
    few, many = answered(defined(), range(1)), answered(defined())
    assert many.ridge == pytest.approx(math.sqrt(3) * few.ridge)


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_the_servers_noise_is_what_it_believes(epsilon: float) -> None:
    definition = defined(RUN.replace("4.0", str(epsilon)))
    exact = answered(defined(NO_NOISE), range(1)).moments
    noise = answered(definition, range(1)).moments - exact
    server = answered(definition, range(1))
    deviation = math.sqrt(server.variance)
    features = server._rows.features
    rows, columns = torch.triu_indices(features, features)
    half = len(rows)
    for part, due in (
        (noise[:half][rows == columns], deviation),
        (noise[:half][rows != columns], deviation / math.sqrt(2)),
        (noise[half:], deviation),
    ):
        ratio = float(part.square().mean().sqrt()) / due
        assert abs(ratio - 1) < 6 / math.sqrt(2 * len(part)) + 0.02  # fails at 2/3 and 3/2
    assert 6 / math.sqrt(2 * (half - features)) + 0.02 < 1 / 3


def test_half_a_matrix_is_read_as_a_whole() -> None:
    generator = torch.Generator().manual_seed(1)
    square = torch.rand(5, 5, generator=generator, dtype=torch.float64)
    square = square + square.T
    cross = torch.rand(5, 2, generator=generator, dtype=torch.float64)
    vector = torch.from_numpy(packed(square.numpy(), cross.numpy()))
    both: tuple[Tensor, Tensor] = unpacked(vector, 5)
    assert torch.equal(both[0], square)
    assert torch.equal(both[1], cross)


def test_what_is_negative_by_noise_is_taken_for_nothing() -> None:
    square = torch.diag(torch.tensor([4.0, -50.0], dtype=torch.float64))
    weights = solution(square, torch.ones(2, 1, dtype=torch.float64), 1.0, 0.0).weights
    assert weights.flatten().tolist() == pytest.approx([0.2, 1.0])


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('privacy.mechanism = "gaussian"', "second moments are whole numbers"),
        ("privacy.clip = 2.0", "privacy.clip=2.0: a row counts as 1 at most; leave it out"),
        ("privacy.noise_multiplier = 2.0", "follows from privacy.epsilon; leave it out"),
        ("privacy.pushes = 2", "privacy.pushes=2: an edge releases once; leave it out"),
        ("privacy.batch = 10", "privacy.batch=10: every row is read, once; leave it out"),
        ('model.name = "mlp"\nmodel.hidden = [4]', "model.name=mlp: least-squares solves for one"),
        ('model.name = "linear"\nmodel.regularization = 0.1', "has algorithm.ridge in its place"),
        ("guard.norm_factor = 2.0", "guard.norm_factor"),
        ("guard.sums = true", "guard.sums=true"),
        ("run.average = 0.5", "run.average=0.5: each answer is in the last model"),
        ("algorithm.ridge = 0.0", "algorithm.ridge=0.0"),
        ("algorithm.class_weights = [2.0]", "algorithm.class_weights"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(line: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config.parse(f"{RUN}\n{line}", "run.toml")
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_class_weights_are_one_for_each_class() -> None:
    definition = defined(f"{RUN}\nalgorithm.class_weights = [1.0, 0.5]")
    with pytest.raises(ConfigError, match="2 for 10 classes; state one for each"):
        definition.build_model()


def test_too_much_noise_is_refused_before_an_edge_is_asked() -> None:
    definition = defined(RUN.replace("4.0", "0.001"))
    with pytest.raises(ConfigError, match="choose a larger ε, or fewer"):
        registry.server(definition, definition.build_model())


def test_an_edge_releases_once_and_then_retires() -> None:
    definition = defined()
    model = definition.build_model()
    releaser = Releaser(definition.plans.named("edge-0"), Ledger(":memory:", "t"), Random())
    edge = registry.edge(definition, "edge-0", digits(definition, 0), model, releaser)
    message = GlobalModel(0, model.init(1), 1.0, definition.terms)
    kinds = [type(out.message) for _ in range(2) for out in edge.on_message(message)]
    assert kinds == [Push, Retired]
    assert releaser.ledger.charged().count == 1


def test_what_a_server_sends_changes_nothing_of_an_answer() -> None:
    definition = defined()
    model = definition.build_model()
    answers = []
    for fill in (0.0, 5.0):
        releaser = Releaser(definition.plans.named("edge-0"), Ledger(":memory:", "t"), Random(4))
        edge = registry.edge(definition, "edge-0", digits(definition, 0), model, releaser)
        params = torch.full((model.size,), fill)
        (out,) = edge.on_message(GlobalModel(0, params, 1.0, definition.terms))
        assert isinstance(out.message, Push)
        answers.append(out.message.released.vector)
    assert torch.equal(*answers)
