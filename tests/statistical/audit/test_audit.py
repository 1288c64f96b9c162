"""The audit itself: honest edges pass it, every mutant is caught by name, and each of its tests can
fail.

Seeds are fixed; `tacit audit` draws fresh ones. One run raises a false alarm with probability below
ALPHA = 1e-3.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from tacit_services.cli import main
from tacit_services.cli.audit import host
from torch import Tensor

from tacit.audit import (
    asked_mutants,
    histogram_edges,
    judged_mutants,
    message_attacks,
    moments_mutants,
    rows_in_messages,
)
from tacit.audit.mutants import FIRST_LAYER, HALF, MEAN_CLIP, OTHERS, SAMPLED
from tacit.audit.mutants_alone import AloneTwiceTheClip
from tacit.audit.party_mutants import HONEST as PARTIES
from tacit.audit.party_mutants import MUTANTS, STRUCTURE
from tacit.audit.statistics import (
    DECISIONS,
    SHARE,
    Finding,
    ScoreValues,
    one_run_epsilon,
    one_run_p_value,
    proven,
    related,
    sampler_p_value,
    tails,
    uneven,
)
from tacit.audit.subject import NARROW, WIDE, Randomness, Subject
from tacit.audit.training import HISTORIES, accountants, training
from tacit.audit.whole import ALGORITHMS, AUDITED, HONEST, SAMPLED_TESTS, SLOTS, audit
from tacit.audit.worlds import MessageSource, World, quiet_source, quiet_world
from tacit.datasets import Dataset
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.privacy.noise.mechanisms import knorm, paper_noise
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release import PRIVATE, Releaser
from tacit.protocol import wire
from tacit.protocol._pb import wire_pb2 as pb
from tests.helpers.nightly import nightly
from tests.unit.protocol.test_wire import of_0_2

PUSHES = 1600
FEW = 400  # what shows a mutant: with more pushes a bound only rises
GAUSSIAN, DISCRETE, KNORM = HONEST
WIDE_CLIP = next(s for _, s, _ in SAMPLED if s.ways and s.ways.alone is AloneTwiceTheClip)
WEAK = Subject("gaussian at z = 4", z=4.0)  # little to find
NOBODY = Dataset(torch.zeros(0, *NARROW.shape), torch.zeros(0, dtype=torch.int64), 2, "audit")
BY_NAME = {subject.mechanism: subject for subject in HONEST}


def bad(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if not finding.good]


# -- the whole -------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_the_whole_audit_passes_every_mechanism_and_catches_every_mutant() -> None:
    findings = list(audit(host(), seed=1))
    assert bad(findings) == []
    honest = {finding.target for finding in findings if finding.honest}
    assert {*PRIVATE, "accounting", *(subject.name for subject in ALGORITHMS)} <= honest
    assert {subject.name for _, subject, _ in PARTIES} <= honest
    caught = {finding.target for finding in findings if finding.verdict == "caught"}
    several = {subject.name for _, subject, _ in SAMPLED} | {
        subject.name for _, subject, _ in MUTANTS
    }
    every_row = {asked_mutants.HONEST.name, judged_mutants.JUDGED_HONEST.name}
    assert {*every_row, histogram_edges.HONEST.name} <= honest
    broken = (
        *OTHERS, *asked_mutants.MUTANTS, *judged_mutants.JUDGED_MUTANTS, *moments_mutants.MUTANTS,
        *histogram_edges.MUTANTS,
    )  # fmt: skip
    single = {str(subject) for _, subject in broken} | {str(moments_mutants.LATE)}
    assert caught == several | single | {subject.name for _, subject in STRUCTURE}
    assert 0.9 * DECISIONS < sum(map(decisions, findings)) <= DECISIONS


WITH_CHANCE = {"std/claim", "p-value", "|correlation|", "C a record", "C a unit"}


def decisions(finding: Finding) -> int:
    """Return how many limits, or tests with chance, may accuse an honest target in this finding.

    A bound needs two limits, and where the finding is the larger of both directions, four. Kernels'
    times have an arithmetic of their own (`row_times`), and what compares bytes has no chance.
    """
    if not finding.honest:
        return 0
    if finding.quantity in ("μ", "ε") and finding.test != "one whole training":
        return 4 if finding.test.startswith(("time, ", "party, ")) else 2
    return int(finding.quantity in WITH_CHANCE or finding.test == "one whole training")


@pytest.mark.exhaustive
def test_thirty_audits_of_honest_mechanisms_raise_no_alarm() -> None:
    alarms = []
    for seed in range(30):
        source = Randomness(100 + seed)
        for subject in HONEST:
            findings = message_attacks.canary(subject, source, 500)
            findings += message_attacks.noise(subject, source, 300) + rows_in_messages.sampler(
                subject, source, 300
            )
            for check in (
                message_attacks.anew,
                message_attacks.empty_batch,
                message_attacks.starts,
                message_attacks.fields,
                message_attacks.orders,
                training,
            ):
                findings += check(subject, source)
            alarms += bad(findings)
    assert alarms == []


@pytest.mark.exhaustive
def test_a_restricted_audit_has_that_mechanism_only() -> None:
    targets = [finding.target for finding in audit(host(), ["paper:density"], seed=1)]
    assert targets == ["accounting"] * 3 + ["MUTANT paper:density"]


def test_a_mutant_that_is_not_caught_is_a_bad_finding_and_so_is_an_honest_alarm() -> None:
    verdicts = {
        (honest, alarm): Finding("t", "x", "ε", 1.0, 2.0, alarm, honest)
        for honest in (True, False)
        for alarm in (True, False)
    }
    assert [verdicts[key].verdict for key in verdicts] == ["LEAKS", "passes", "caught", "MISSED"]
    assert [verdicts[key].good for key in verdicts] == [False, True, True, False]


def test_every_mechanism_and_the_papers_own_are_audited() -> None:
    covered = {subject.mechanism for subject in HONEST} | {
        subject.mechanism for _, subject, _ in SAMPLED
    }
    assert covered == set(AUDITED)


# -- A: one record, in or out ----------------------------------------------------------------------


@cache
def canary(subject: Subject, pushes: int = PUSHES) -> tuple[Finding, ...]:
    return tuple(message_attacks.canary(subject, Randomness(7), pushes))


@pytest.mark.parametrize(
    "subject", [*HONEST[:2], *nightly(*HONEST[2:], WEAK)], ids=lambda subject: subject.name
)
def test_the_real_edge_leaks_no_more_than_it_claims_in_either_direction(subject: Subject) -> None:
    findings = canary(subject)
    assert bad(list(findings)) == []
    assert {finding.test for finding in findings} == {"canary D/D'", "canary D'/D"}
    assert all(finding.measured <= finding.claim for finding in findings)


@pytest.mark.parametrize("subject", [GAUSSIAN, DISCRETE], ids=lambda subject: subject.name)
def test_the_audit_has_power(subject: Subject) -> None:
    # Of 1: a test that always says 0 would pass anything.
    assert all(finding.measured > 0.5 for finding in canary(subject) if finding.quantity == "μ")


def test_the_claims_are_those_of_the_accountant() -> None:
    assert (WEAK.mu, WEAK.epsilon) == (0.25, epsilon_pld([Spend(1.0, 4.0, 1)], 1e-5))
    assert (KNORM.mu, KNORM.epsilon, KNORM.delta) == (None, 2.0, 0.0)


@pytest.mark.parametrize(
    "mutant", [HALF, MEAN_CLIP, FIRST_LAYER, WIDE_CLIP], ids=lambda subject: subject.name
)
def test_a_mutant_leaks_more_than_it_claims(mutant: Subject) -> None:
    findings = canary(mutant, FEW)
    assert all(finding.verdict == "caught" for finding in findings if finding.quantity == "μ")


@pytest.mark.parametrize("mutant", [MEAN_CLIP, FIRST_LAYER], ids=lambda subject: subject.name)
def test_the_coarse_mutants_break_the_claimed_epsilon_too(mutant: Subject) -> None:
    findings = message_attacks.canary(mutant.but(z=4.0), Randomness(1), FEW)
    assert all(finding.verdict == "caught" for finding in findings if finding.quantity == "ε")


def nearer(points: Tensor, shift: Tensor) -> ScoreValues:
    values: ScoreValues = (points.norm(dim=1) / (points - shift).norm(dim=1)).log().numpy()
    return values


def test_the_papers_noise_alone_leaks_more_than_it_claims_and_knorm_does_not() -> None:
    """Release two points ΔS apart in 200 dimensions, at 0.5 per release.

    The paper's noise leaks even with a sensitivity that holds.
    """
    random, shift = Random(1), torch.zeros(200, dtype=torch.float64)
    shift[0] = 1.0
    draws: dict[str, Callable[[], Tensor]] = {
        "paper": lambda: paper_noise(200, 1 / 0.5, random),
        "knorm": lambda: knorm(torch.zeros(200), 1 / 0.5, random),
    }
    bounds = {}
    for name, draw in draws.items():
        noise = torch.stack([draw() for _ in range(2 * PUSHES)])
        bounds[name] = proven(
            nearer(noise[:PUSHES] + shift, shift), nearer(noise[PUSHES:], shift), 0.0
        )[1]
    assert bounds["paper"] > 4 * 0.5
    assert bounds["knorm"] <= 0.5


def test_the_bounds_raise_no_false_alarm_in_thirty_runs() -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        mu, epsilon = proven(rng.normal(1.0, 1.0, PUSHES), rng.normal(0.0, 1.0, PUSHES), 1e-5)
        assert mu <= 1.0
        assert epsilon <= GAUSSIAN.epsilon


@pytest.mark.parametrize("true", [1.5, 2.0])
def test_the_bounds_see_a_larger_distance(true: float) -> None:
    rng = np.random.default_rng(1)
    assert proven(rng.normal(true, 1.0, 8000), rng.normal(0.0, 1.0, 8000), 1e-5)[0] > 0.85 * true


# -- B: structure ----------------------------------------------------------------------------------


@cache
def drawn(subject: Subject, *, canary: bool = False) -> Tensor:
    return quiet_source(subject, Randomness(3), canary=canary).vectors(1200)


@pytest.mark.parametrize("subject", [*HONEST, WEAK], ids=lambda subject: subject.name)
def test_every_coordinate_on_the_wire_carries_the_claimed_noise(subject: Subject) -> None:
    noise = drawn(subject, canary=True) - drawn(subject, canary=True).mean(dim=0)
    assert uneven(noise, subject.std, subject.kurtosis)[1] == []


def test_coordinates_without_their_noise_are_named() -> None:
    assert uneven(drawn(FIRST_LAYER), FIRST_LAYER.std)[1] == list(
        range(NARROW.first_layer.stop, NARROW.size)
    )
    assert uneven(drawn(HALF), HALF.std)[1] == list(range(NARROW.size))


@pytest.mark.parametrize("scale", [2 / 3, 0.8, 1.25, 3 / 2])
@pytest.mark.parametrize("subject", HONEST, ids=lambda subject: subject.name)
def test_noise_of_another_scale_is_caught_in_every_coordinate(
    subject: Subject, scale: float
) -> None:
    assert uneven(drawn(subject), subject.std, subject.kurtosis)[1] == []
    assert uneven(scale * drawn(subject), subject.std, subject.kurtosis)[1] == list(
        range(NARROW.size)
    )


def test_one_coordinate_of_a_wide_model_is_found() -> None:
    noise = drawn(GAUSSIAN.but(model=WIDE)).clone()
    noise[:, 77] *= 0.8
    assert uneven(noise, GAUSSIAN.std)[1] == [77]


def test_the_noise_of_successive_pushes_is_uncorrelated() -> None:
    noise = drawn(GAUSSIAN).clone()
    largest, limit = related(noise[:-1], noise[1:])
    assert largest < limit
    noise[1:] += 0.3 * noise[:-1]  # some of the last push's noise once more
    largest, limit = related(noise[:-1], noise[1:])
    assert largest > limit


@pytest.mark.parametrize("subject", HONEST, ids=lambda subject: subject.name)
def test_an_empty_batch_looks_like_any_other(subject: Subject) -> None:
    empty = subject.but(rate=1e-9)
    assert len(quiet_source(empty, Randomness(1), canary=True)()) == len(
        quiet_source(subject, Randomness(1), canary=True)()
    )
    noise = drawn(empty, canary=True)
    assert uneven(noise, empty.std, empty.kurtosis)[1] == []
    assert float(noise.mean(dim=0).abs().max()) < 5 * empty.std / math.sqrt(len(noise))


@pytest.mark.parametrize("rate", [1.0, 0.3, 1e-9])
@pytest.mark.parametrize("subject", [*HONEST, *ALGORITHMS], ids=lambda subject: subject.name)
def test_everything_but_the_vector_is_the_same_with_and_without_the_record(
    subject: Subject, rate: float
) -> None:
    with_it, without = (
        quiet_source(subject.but(rate=rate), Randomness(1), canary=present)
        for present in (True, False)
    )
    fields = [message_attacks.open_fields(with_it()) for _ in range(20)]
    assert fields == [message_attacks.open_fields(without()) for _ in range(20)]
    assert all(alone for alone, _ in fields)


def test_a_form_that_its_numbers_do_not_make_is_noticed() -> None:
    integers, meta = torch.tensor([1, 2, 3], dtype=torch.int32), pb.Meta(update=pb.Update())
    plain = wire.encode(meta, integers)
    assert [message_attacks.open_fields(form)[0] for form in (plain, of_0_2(plain))] == [
        True,
        False,
    ]
    head = pb.Charged(head=bytes(31))
    longer = wire.encode(pb.Meta(update=pb.Update(charged=head)), integers)
    assert message_attacks.open_fields(longer) != message_attacks.open_fields(plain)


# -- C: who was in the batch -----------------------------------------------------------------------


def table(
    draw: Callable[[np.random.Generator], ScoreValues], count: int = 1000
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    rng = np.random.default_rng(1)
    return np.stack([draw(rng) for _ in range(count)]).astype(np.int64)


def poisson(rate: float) -> Callable[[np.random.Generator], ScoreValues]:
    return lambda rng: (rng.random(40) < rate).astype(np.float64)


def of_one_size(rng: np.random.Generator) -> ScoreValues:
    row = np.zeros(40)
    row[rng.choice(40, 4, replace=False)] = 1
    return row


def a_couple(rng: np.random.Generator) -> ScoreValues:
    row = poisson(0.1)(rng)
    row[1] = row[0]
    return row


def test_a_poisson_sampler_passes_and_others_do_not() -> None:
    assert sampler_p_value(table(poisson(0.1)), 0.1) > 1e-3
    for other in (poisson(0.08), poisson(0.12), of_one_size, a_couple):
        assert sampler_p_value(table(other), 0.1) < SHARE
    favoured = table(poisson(0.1))
    favoured[favoured.sum(1) <= 2, 0] = 1  # row 0 fills the smallest batches
    assert sampler_p_value(favoured, 0.1) < SHARE
    repeated = table(poisson(0.1))
    repeated[1::2] = repeated[::2]  # every batch twice
    assert sampler_p_value(repeated, 0.1) < SHARE


def test_the_samplers_p_value_is_one() -> None:
    rng = np.random.default_rng(1)
    values = [
        sampler_p_value((rng.random((300, 40)) < 0.1).astype(np.int64), 0.1) for _ in range(200)
    ]
    for level in (0.01, 0.05, 0.2):
        assert np.mean(np.array(values) < level) <= level + 3 * math.sqrt(level / 200)


@pytest.mark.parametrize(
    ("test", "mutant"), [pair for pair in OTHERS if pair[0] in ("sampler", "in parts")], ids=str
)
def test_a_sampler_that_is_not_poisson_is_caught_through_the_wire(
    test: str, mutant: Subject
) -> None:
    sampler = {"sampler": rows_in_messages.sampler, "in parts": rows_in_messages.sampler_in_parts}[
        test
    ]
    assert [finding.verdict for finding in sampler(mutant, Randomness(1))] == ["caught"]


@pytest.mark.parametrize("subject", HONEST, ids=lambda subject: subject.name)
def test_rows_that_are_computed_in_several_parts_are_drawn_as_promised(subject: Subject) -> None:
    findings = rows_in_messages.sampler_in_parts(subject, Randomness(1), 300)
    assert [finding.verdict for finding in findings] == ["passes"]


@pytest.mark.parametrize(
    "subject", [GAUSSIAN, *SLOTS, *ALGORITHMS], ids=lambda subject: subject.name
)
def test_the_sampler_of_every_algorithm_passes(subject: Subject) -> None:
    assert [
        finding.verdict for finding in rows_in_messages.sampler(subject, Randomness(1), 200)
    ] == ["passes"]


NEW = ("against", "places", "places in parts", "places in a graph", "crowd", "own", "raising")


# Their edges run a network from a graph, which takes seconds: the first in CI, the others in nightly.
IN_GRAPH, *MORE_IN_GRAPH = [row for row in SAMPLED if row[0] == "places in a graph"]
OTHER_SAMPLED = [row for row in SAMPLED if row[0] in NEW and row[0] != "places in a graph"]
# Of the others, those with the longest attacks; each has a shorter one of its kind beside it.
LONG = ("an exception drops the batch", "own rows weighted by their number", "layers clipped apart")


@pytest.mark.parametrize(
    ("test", "mutant", "pushes"),
    [
        *(row for row in OTHER_SAMPLED if not row[1].name.endswith(LONG)),
        IN_GRAPH,
        *nightly(*(row for row in OTHER_SAMPLED if row[1].name.endswith(LONG)), *MORE_IN_GRAPH),
    ],
    ids=str,
)
def test_rows_that_are_added_moved_or_rounded_otherwise_are_caught(
    test: str, mutant: Subject, pushes: int
) -> None:
    assert "caught" in {
        finding.verdict for finding in SAMPLED_TESTS[test](mutant, Randomness(1), pushes)
    }


@pytest.mark.parametrize(
    "mutant", [subject for test, subject in OTHERS if test == "fields"], ids=str
)
def test_what_is_said_beside_the_numbers_is_the_same_with_the_canary(mutant: Subject) -> None:
    honest = mutant.but(edge=None, ways=None, releaser=Releaser, honest=True)
    assert [finding.verdict for finding in message_attacks.fields(honest, Randomness(1))] == [
        "passes"
    ]
    assert [finding.verdict for finding in message_attacks.fields(mutant, Randomness(1))] == [
        "caught"
    ]


@pytest.mark.parametrize("test", NEW)
@pytest.mark.parametrize(
    "subject", [DISCRETE, *nightly(GAUSSIAN)], ids=lambda subject: subject.name
)
def test_rows_of_the_real_edge_are_not(test: str, subject: Subject) -> None:
    pushes = {"crowd": 20, "raising": 50}.get(test, 200)
    assert bad(SAMPLED_TESTS[test](subject, Randomness(1), pushes)) == []


def test_an_edge_without_any_row_sends_noise_like_any_other() -> None:
    assert message_attacks.strange(GAUSSIAN, Randomness(1))[0].measured == 0
    empty = MessageSource(
        GAUSSIAN,
        Randomness(1),
        World(quiet_world(NARROW).params, NOBODY, NOBODY, torch.empty(0)),
        canary=False,
    )
    assert uneven(empty.vectors(400), GAUSSIAN.std)[1] == []


def test_cut_tails_and_equal_messages_are_found() -> None:
    noise = drawn(GAUSSIAN.but(model=WIDE)) / GAUSSIAN.std
    assert tails(noise)[0] > 1e-3
    assert tails(noise.clamp(-3.4, 3.4))[0] < SHARE


# -- D: one run ------------------------------------------------------------------------------------


def test_the_one_run_bound_is_steinkes() -> None:
    # Without δ it is the binomial tail: ε with P[Bin(r, e^ε/(1+e^ε)) >= r] = p, by hand
    # ln(p^(1/r)/(1-p^(1/r))).
    root = SHARE ** (1 / 200)
    assert one_run_epsilon(200, 200, 1000, 0.0) == pytest.approx(
        math.log(root / (1 - root)), abs=1e-3
    )
    assert one_run_p_value(0, 200, 1000, 1.0, 0.0) == 1.0
    # P[W >= 2] + 2mδ·max(P[W = 1], P[W >= 0 and W < 2]/2), W ~ Bin(2, 1/2), m = 10, δ = 0.01
    assert one_run_p_value(2, 2, 10, 0.0, 0.01) == pytest.approx(0.25 + 0.2 * max(0.5, 0.75 / 2))


def test_the_one_run_bound_falls_with_delta_and_rises_with_guesses_that_were_right() -> None:
    bounds = [one_run_epsilon(right, 200, 1000, 1e-7) for right in range(100, 201, 20)]
    assert bounds == sorted(bounds)
    assert bounds[0] == 0.0
    assert one_run_epsilon(190, 200, 1000, 1e-4) < one_run_epsilon(190, 200, 1000, 1e-7)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_whole_training_of_the_real_edge_passes_and_one_of_mean_clipping_does_not(
    seed: int,
) -> None:
    assert [finding.verdict for finding in training(GAUSSIAN, Randomness(seed))] == ["passes"]
    assert [finding.verdict for finding in training(MEAN_CLIP, Randomness(seed))] == ["caught"]


# -- E: the accountants ----------------------------------------------------------------------------


def exact(rate: float, z: float, count: int, delta: float) -> float:
    return epsilon_pld([Spend(rate, z, count)], delta)


def test_the_accountants_agree_with_opacus() -> None:
    findings = accountants(host().prv)
    assert [finding.verdict for finding in findings] == ["passes"] * 3
    assert findings[0].measured > 0  # two libraries, not one against itself


def test_an_accountant_that_is_off_is_noticed() -> None:
    off = accountants(exact, lambda q, z, count, delta: exact(q, z, count, delta) + 0.03)
    assert off[0].verdict == "LEAKS"
    loose = accountants(exact, lambda q, z, count, delta: 2 * exact(q, z, count, delta))
    assert loose[1].verdict == "LEAKS"


def test_without_a_second_accountant_the_row_says_so() -> None:
    (row, *_) = accountants(None)
    assert row.good
    assert row.verdict == "skipped: opacus not installed"
    assert len(HISTORIES) >= 3


# -- the command -----------------------------------------------------------------------------------


def tacit(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main.main(list(arguments))
    assert isinstance(end.value.code, int)
    return end.value.code


def test_the_command_prints_every_finding_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert tacit("audit", "--mechanism", "paper:first_layer", "--seed", "1", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["target"] for row in rows] == ["accounting"] * 3 + ["MUTANT paper:first_layer"]
    assert rows[-1]["verdict"] == "caught"
    assert rows[-1]["measured"] > rows[-1]["claim"]


@pytest.mark.parametrize(("honest", "alarm"), [(True, True), (False, False)])
def test_a_leak_or_a_missed_mutant_is_exit_code_5(
    honest: bool, alarm: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = Finding("canary", "x", "ε", 1.0, 2.0, alarm, honest)
    monkeypatch.setattr("tacit.audit.whole.audit", lambda *_, **__: iter([finding]))
    assert tacit("audit") == 5
    captured = capsys.readouterr()
    assert finding.verdict in captured.out
    assert captured.err.startswith("tacit: audit of 1 findings")


def test_an_unknown_mechanism_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert tacit("audit", "--mechanism", "laplace") == 2
    assert "laplace" in capsys.readouterr().err
