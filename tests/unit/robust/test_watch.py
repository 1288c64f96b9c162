"""Many edges are watched in groups: the same is found, and nothing is compared with all."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tacit.robust import edge_watch
from tacit.robust.agreement import opponents
from tacit.robust.edge_watch import Watch
from tacit.robust.law import Law, Walk

SIZE, EDGES, GROUP = 60, 20, 7
LAW = Law(1.0, 2.0, 1.0)
NAMES = [f"edge-{number}" for number in range(EDGES)]
AXIS = torch.zeros(SIZE).index_fill(0, torch.tensor([0]), 1.5)


def updates(liars: set[str], rounds: int, names: list[str] = NAMES) -> list[tuple[str, Tensor]]:
    """Return what every edge sends, in turns; of liars the mean has the other sign."""
    generator = torch.Generator().manual_seed(3)
    return [
        (name, (-AXIS if name in liars else AXIS) + torch.randn(SIZE, generator=generator))
        for _ in range(rounds)
        for name in names
    ]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Return whose sums were compared with one another, each time; GROUP are the most."""
    compared_groups: list[set[str]] = []

    def noted(walks: dict[str, Walk], t: float, **margins: float) -> list[str]:
        if margins.get("worse") == math.inf:  # asked for every group in its turn
            compared_groups.append(set(walks))
        return opponents(walks, t, **margins)

    monkeypatch.setattr(edge_watch, "MOST", GROUP)
    monkeypatch.setattr(edge_watch, "opponents", noted)
    return compared_groups


def judged(watch: Watch, sent: list[tuple[str, Tensor]]) -> None:
    for edge, vector in sent:
        assert watch.judge(edge, vector, LAW).accused == {}


def test_liars_are_found_among_many_and_nobody_else_is(compared: list[set[str]]) -> None:
    liars = {"edge-0", "edge-1", "edge-13"}
    watch = Watch(SIZE, EDGES, 1e-6, agreement=True)
    judged(watch, updates(liars, 120))
    assert watch.opposed == liars
    assert watch.judge("edge-13", -AXIS, LAW).weight == edge_watch.OPPOSED_WEIGHT
    assert max(map(len, compared)) <= GROUP
    assert set[str]().union(*compared) == set(NAMES)
    # Each group is asked about as often as the others.
    turns = [sum(name in group for group in compared) for name in NAMES]
    assert max(turns) < 2 * min(turns)


def test_a_snapshot_goes_on_with_the_same_groups(compared: list[set[str]]) -> None:
    sent = updates({"edge-4"}, 60)
    uninterrupted, first = (Watch(SIZE, EDGES, 1e-6, agreement=True) for _ in range(2))
    half = len(sent) // 2
    verdicts = [uninterrupted.judge(edge, vector, LAW) for edge, vector in sent]
    for edge, vector in sent[:half]:
        first.judge(edge, vector, LAW)
    second = Watch(SIZE, EDGES, 1e-6, agreement=True)
    second.restore(*first.state())
    assert [second.judge(edge, vector, LAW) for edge, vector in sent[half:]] == verdicts[half:]


def test_an_update_is_weighed_against_its_group_only(compared: list[set[str]]) -> None:
    watch = Watch(SIZE, EDGES, 1e-6, agreement=True)
    judged(watch, updates(set(), 3))
    groups = [watch._group(number) for number in range(watch.groups)]
    assert watch.groups == math.ceil(EDGES / GROUP)
    assert sorted(name for group in groups for name in group) == sorted(NAMES)
    assert max(map(len, groups)) - min(map(len, groups)) <= 1
    watch.forget("edge-7")
    assert all("edge-7" not in watch._group(number) for number in range(watch.groups))
    watch.judge("edge-7", AXIS, LAW)
    assert sum("edge-7" in watch._group(number) for number in range(watch.groups)) == 1


@pytest.mark.parametrize(("times", "adds"), [(1.0, 1.0), (1.4, 1.4), (10.0, 1.2), (40.0, 0.3)])
def test_who_pulls_much_further_than_the_others_adds_less_than_they_do(
    times: float, adds: float
) -> None:
    wide = Law(100.0, 2.0, 1.0)  # whatever is pulled is within it
    watch, generator = Watch(SIZE, 5, 1e-6, agreement=True), torch.Generator().manual_seed(5)
    verdicts = {}
    for _ in range(400):
        for name in NAMES[:5]:
            led = AXIS * (times if name == "edge-4" else 1.0)
            vector = led + torch.randn(SIZE, generator=generator)
            verdicts[name] = watch.judge(name, vector, wide)
    assert [verdicts[name].weight for name in NAMES[:4]] == [1.0] * 4
    assert verdicts["edge-4"].weight * times <= adds
    assert not any(verdict.accused for verdict in verdicts.values())


@pytest.mark.parametrize("length", [4, 6, 12, 25, 40])
def test_who_goes_back_and_forth_adds_little_more_than_the_others_at_any_time(length: int) -> None:
    # Given an edge whose updates cancel, each ten times as far as the others',
    wide = Law(100.0, 2.0, 1.0)
    watch, generator = Watch(SIZE, 5, 1e-6, agreement=True), torch.Generator().manual_seed(5)
    weights = []
    for number in range(200):
        sign = 1 if number // length % 2 == 0 else -1
        for name in NAMES[:5]:
            led = AXIS * (10.0 * sign if name == "edge-4" else 1.0)
            vector = led + torch.randn(SIZE, generator=generator)
            verdict = watch.judge(name, vector, wide)
            if name == "edge-4" and number >= 3:
                weights.append(verdict.weight)
    # then each wave adds less than as many honest updates, and four of its own where it turns.
    waves = [10 * sum(weights[k : k + length]) for k in range(len(weights) - length)]
    assert max(waves) < min(length + 40, 8.5 * length)


@pytest.mark.parametrize("odd_pulls", [2.0, 2.5])
def test_an_edge_that_a_liar_frames_is_neither_shut_out_nor_silenced(odd_pulls: float) -> None:
    # Given three edges that agree, and one whose own data pulls it another way, further,
    wide = Law(100.0, 2.0, 1.0)
    watch, generator = Watch(SIZE, 5, 1e-6, agreement=True), torch.Generator().manual_seed(5)
    beside = torch.zeros(SIZE).index_fill(0, torch.tensor([1]), 1.5)
    odd = odd_pulls * (-0.6 * AXIS + 0.8 * beside)
    # and a liar with the three against it, twice as far as they;
    against = AXIS - odd
    against = against * (3.0 / float(torch.linalg.vector_norm(against)))
    means = dict(zip(NAMES[:5], [against, AXIS, AXIS, AXIS, odd], strict=True))
    for _ in range(150):
        for name, mean in means.items():
            verdict = watch.judge(name, mean + torch.randn(SIZE, generator=generator), wide)
            assert verdict.accused == {}
    # then the odd one, which was asked last, still has its whole say.
    assert verdict.weight == 1.0
    assert watch.opposed == set()


def test_who_turns_the_mean_of_edges_with_data_of_their_own_counts_for_little() -> None:
    # Given four edges that share little, and one that sends their mean with its sign turned,
    wide, generator = Law(100.0, 2.0, 1.0), torch.Generator().manual_seed(5)
    watch = Watch(SIZE, 5, 1e-6, agreement=True)
    means = [AXIS.roll(number) * 2 + AXIS for number in range(1, 5)]
    total = torch.stack(means).sum(0)
    turned = -total * (float(torch.linalg.vector_norm(means[0])) / float(total.norm()))
    weights = {}
    for _ in range(60):
        for name, mean in zip(NAMES[:5], [turned, *means], strict=True):
            verdict = watch.judge(name, mean + torch.randn(SIZE, generator=generator), wide)
            assert verdict.accused == {}
            weights[name] = verdict.weight
    # then it alone counts for little, and is not shut out.
    assert watch.opposed == {"edge-0"}
    assert 0 < weights.pop("edge-0") <= edge_watch.OPPOSED_WEIGHT
    assert set(weights.values()) == {1.0}


# Of each of a few edges: two means of its updates, (along two axes, how much of the law), in turns.
MEANS = st.tuples(st.integers(-2, 2), st.integers(-2, 2), st.sampled_from([0.0, 0.05, 0.3, 1.0]))
TURNED, PLAIN = [(-1, 0, 0.5), (-1, 0, 0.5)], [(1, 0, 0.5), (1, 0, 0.5)]
ODD, FRAMER = [(-1, 2, 0.3), (-1, 2, 0.3)], [(2, -1, 1.0), (2, -1, 1.0)]


@settings(deadline=None, max_examples=12)
@given(st.lists(st.lists(MEANS, min_size=2, max_size=2), min_size=3, max_size=6), st.integers(1, 9))
@example([TURNED, PLAIN, PLAIN, PLAIN, PLAIN], 4)
@example([TURNED, TURNED, PLAIN, PLAIN, PLAIN], 4)
@example([FRAMER, PLAIN, PLAIN, PLAIN, ODD], 4)
@example([[(1, 0, 1.0), (-1, 0, 1.0)], PLAIN, PLAIN, PLAIN, TURNED], 4)
def test_agreement_shuts_out_nobody_and_leaves_everybody_some_weight(
    edges: list[list[tuple[int, int, float]]], turn: int
) -> None:
    """Whatever edges send: who is accused is who `sums` alone accuse, and who keeps the law is not.

    This holds by construction, as `judge` has no other accusation. So it is asked of every update.
    """
    law, generator = Law(1.0, 3.0, 1.0), torch.Generator().manual_seed(7)
    with_agreement, sums_alone = (
        Watch(SIZE, len(edges), 1e-6, agreement=agreement) for agreement in (True, False)
    )
    for number in range(50):
        for name, means in zip(NAMES, edges, strict=False):
            along, across, part = means[number // turn % 2]
            mean = torch.zeros(SIZE)
            mean[0], mean[1] = along, across
            mean *= part * law.pull * law.rows / max(1.0, math.hypot(along, across))
            vector = mean + torch.randn(SIZE, generator=generator)
            verdict = with_agreement.judge(name, vector, law)
            assert verdict.accused == sums_alone.judge(name, vector, law).accused == {}
            assert 0 < verdict.weight <= 1
    # Nor for what breaks the law does it accuse anybody but the edge that sent it.
    broken = torch.full((SIZE,), 1e3)
    verdict = with_agreement.judge(NAMES[0], broken, law)
    assert verdict.accused == sums_alone.judge(NAMES[0], broken, law).accused
    assert verdict.accused.keys() == {NAMES[0]}


def test_a_snapshot_of_0_2_goes_on_and_learns_the_latest_updates_anew() -> None:
    first, second = (Watch(SIZE, 5, 1e-6, agreement=True) for _ in range(2))
    sent = updates(set(), 8, NAMES[:5])
    judged(first, sent)
    tensors, values = first.state()
    del values["apart"], values["opposed"]
    for edge in values["edges"].values():
        for name in list(edge):
            if name.startswith("recent"):
                del edge[name]
    tensors = {name: tensor for name, tensor in tensors.items() if "recent" not in name}
    second.restore(tensors, values)
    judged(second, sent)
    assert second.judged == 2 * len(sent)
    assert second.judge("edge-0", AXIS, LAW).weight == 1.0
