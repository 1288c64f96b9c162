"""What a policy makes of an offer, and what of a refusal the host may read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tacit_services.display.progress import SlowSteps
from tacit_services.member.consent import KeyStanding
from tacit_services.member.judging import judged
from tacit_services.member.looking import Looked, Trouble, look, with_rows
from tacit_services.member.verdict import OfferVerdict, PolicyWord, RefusalKind

from tacit.config.site import Site
from tacit.privacy.accounting import Lifetime, Spend
from tacit.privacy.policy import Policy
from tests.helpers.offered import changed, federations_run, fetched, packed, table
from tests.unit.offers.test_packing import KINDS, offered, with_code

WITHIN = Policy(accept="within")


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Looked:
    """An offer whose researcher is known, and whose rows have been looked at."""
    folder = tmp_path_factory.mktemp("offer")
    (folder / "researcher").mkdir()
    offer = packed(folder / "researcher", federations_run())
    site = Site(3, table(folder / "mine.csv", 300, 5))
    looked_at = look(offer.offer, fetched(offer, folder / "member"), site, KeyStanding.KNOWN)
    return with_rows(looked_at, folder / "home", SlowSteps())


def test_an_owner_is_asked_unless_the_policy_says_otherwise(trusted: Looked) -> None:
    assert judged(trusted, Policy()) == OfferVerdict(PolicyWord.ASK)
    assert judged(trusted, WITHIN) == OfferVerdict(PolicyWord.ACCEPT)


def test_nothing_is_accepted_whose_rows_have_not_been_looked_at(trusted: Looked) -> None:
    assert judged(replace(trusted, cost=None), WITHIN).answer is PolicyWord.ASK


POLICIES: dict[str, tuple[dict[str, Any], RefusalKind]] = {
    "less epsilon": ({"max_epsilon": 1.0}, RefusalKind.POLICY),
    "more noise": ({"min_noise_multiplier": 2.0}, RefusalKind.POLICY),
    "another algorithm": ({"algorithms": ["mapa"]}, RefusalKind.POLICY),
    "another researcher": ({"researchers": ["Dr. Eve"]}, RefusalKind.POLICY),
    "fewer columns": ({"columns": ["dose", "ill"]}, RefusalKind.COLUMNS),
}


@pytest.mark.parametrize("what", POLICIES)
@pytest.mark.parametrize("accept", ["ask", "within"])
def test_what_a_policy_forbids_is_refused_whoever_answers(
    trusted: Looked, what: str, accept: str
) -> None:
    keys, kind = POLICIES[what]
    verdict = judged(trusted, Policy.model_validate(keys | {"accept": accept}))
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, kind)
    assert next(iter(keys)) in verdict.reason


def test_a_policy_that_names_all_that_is_asked_accepts(trusted: Looked) -> None:
    policy = Policy(
        accept="within", max_epsilon=100.0, researchers=("Dr. Ada Weiß",),
        columns=("age", "dose", "ill"), algorithms=("fedasync",), lifetime_epsilon=4.0,
    )  # fmt: skip
    assert judged(trusted, policy).answer is PolicyWord.ACCEPT


@pytest.mark.parametrize("standing", [KeyStanding.NEW, KeyStanding.SEEN])
def test_a_name_whose_key_nobody_has_confirmed_is_taken_by_a_person_alone(
    trusted: Looked, standing: KeyStanding
) -> None:
    new = replace(trusted, standing=standing)
    assert judged(new, WITHIN).answer is PolicyWord.ACCEPT  # "*": whoever it is
    named = Policy(accept="within", researchers=("Dr. Ada Weiß",))
    assert judged(new, named).answer is PolicyWord.REFUSE
    assert judged(new, named).unconfirmed
    assert judged(new, named.model_copy(update={"accept": "ask"})).answer is PolicyWord.ASK


@pytest.mark.parametrize("policy", [Policy(), WITHIN])
def test_a_name_with_another_key_is_refused_by_every_policy(
    trusted: Looked, policy: Policy
) -> None:
    verdict = judged(replace(trusted, standing=KeyStanding.OTHER_KEY), policy)
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, RefusalKind.POLICY)
    assert verdict.unconfirmed


@pytest.mark.parametrize("kind", list(RefusalKind))
def test_trouble_has_its_kind_and_its_words_are_the_owners(
    trusted: Looked, kind: RefusalKind
) -> None:
    verdict = judged(replace(trusted, trouble=Trouble(kind, "row 17 has 'Eve'")), WITHIN)
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, kind)


def test_what_the_policy_forbids_is_said_before_what_is_wrong_with_rows(trusted: Looked) -> None:
    looked_at = replace(trusted, trouble=Trouble(RefusalKind.UNAVAILABLE, "row 17"))
    assert judged(looked_at, Policy(max_epsilon=1.0)).kind is RefusalKind.POLICY


def test_a_run_without_a_guarantee_has_no_place_in_a_lifetime(tmp_path: Path) -> None:
    (tmp_path / "researcher").mkdir()
    privacy = {"mechanism": "none", "noise_multiplier": None}
    offer = packed(tmp_path / "researcher", federations_run(privacy=privacy))
    site = Site(3, table(tmp_path / "mine.csv", 300, 5))
    looked_at = look(offer.offer, fetched(offer, tmp_path / "member"), site, KeyStanding.KNOWN)
    looked_at = with_rows(looked_at, tmp_path / "home", SlowSteps())
    assert judged(looked_at, WITHIN).answer is PolicyWord.ACCEPT
    verdict = judged(looked_at, Policy(accept="within", lifetime_epsilon=4.0))
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, RefusalKind.POLICY)


def test_a_lifetime_that_pays_for_nothing_more_refuses(trusted: Looked) -> None:
    # Given
    from tacit_services.member.run_cost import run_cost

    lifetime = Lifetime.begun(4.0, 1e-5)
    spent = (Spend(0.125, 0.8, lifetime.left((), Spend(0.125, 0.8, 1)), "discrete_gaussian"),)
    assert trusted.definition is not None
    # When
    full = replace(trusted, cost=run_cost(trusted.promise, (), lifetime))
    empty = replace(trusted, cost=run_cost(trusted.promise, spent, lifetime))
    # Then
    policy = Policy(accept="within", lifetime_epsilon=4.0)
    assert judged(full, policy).answer is PolicyWord.ACCEPT
    assert full.cost is not None
    assert full.cost.lifetime is not None
    assert full.cost.lifetime.before == 0.0 < full.cost.lifetime.after <= 1.0
    assert full.cost.releases == full.cost.lifetime.releases < 60
    verdict = judged(empty, policy)
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, RefusalKind.POLICY)
    assert "lifetime_epsilon=4.0: 0 % of it is left, which pays for no update" in verdict.reason


def test_a_lifetime_that_pays_for_no_look_refuses_a_run_that_judges(trusted: Looked) -> None:
    # Given: looks of earlier runs have spent all that held-out rows may, and no other row a thing
    from tacit_services.member.run_cost import run_cost

    lifetime = Lifetime.begun(4.0, 1e-5)
    look = Spend(1.0, 3.4, 1, "discrete_gaussian", "judging", "held_out")
    spent = (replace(look, count=lifetime.left((), look)),)
    assert trusted.promise is not None
    judging = replace(trusted.promise, looks=5, look_noise=3.4)
    policy = Policy(accept="within", lifetime_epsilon=4.0)
    # When
    unseen = run_cost(judging, spent, lifetime)
    verdict = judged(replace(trusted, cost=unseen), policy)
    # Then
    assert unseen.releases > 0
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, RefusalKind.POLICY)
    assert "which pays for no look of this run" in verdict.reason
    for other in (run_cost(judging, (), lifetime), run_cost(trusted.promise, (), lifetime)):
        assert judged(replace(trusted, cost=other), policy).answer is PolicyWord.ACCEPT
    done = run_cost(replace(judging, looks=spent[0].count), spent, lifetime, come=spent)
    assert judged(replace(trusted, cost=done), policy).answer is PolicyWord.ACCEPT


# -- questions -------------------------------------------------------------------------------------

ASKED = """
[data]
kind = "table"
rows = 400
columns.dose = { low = 0.0, high = 1.0 }
[edges]
count = 2
[privacy]
epsilon = 1.0
[ask]
questions = ["count", "mean dose", "missing ill"]
"""


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Looked:
    """An offer of questions, whose rows have been looked at."""
    folder = tmp_path_factory.mktemp("asked")
    (folder / "researcher").mkdir()
    offer = packed(folder / "researcher", ASKED, "asked-1")
    site = Site(3, table(folder / "mine.csv", 300, 5))
    looked_at = look(offer.offer, fetched(offer, folder / "member"), site, KeyStanding.KNOWN)
    return with_rows(looked_at, folder / "home", SlowSteps())


def test_questions_that_a_policy_allows_are_accepted(questions: Looked) -> None:
    policy = Policy(
        accept="within", questions=("count", "mean", "missing"), columns=("dose", "ill"),
        max_epsilon=1.0, lifetime_epsilon=1.5,
    )  # fmt: skip
    assert judged(questions, policy) == OfferVerdict(PolicyWord.ACCEPT)


@pytest.mark.parametrize("accept", ["ask", "within"])
@pytest.mark.parametrize(
    ("keys", "kind", "why"),
    [
        ({"questions": ["count", "missing"]}, RefusalKind.POLICY, "mean"),
        ({"questions": []}, RefusalKind.POLICY, "count"),
        ({"columns": ["dose"]}, RefusalKind.COLUMNS, "it reads column ill"),
        ({"columns": ["ill", "age"]}, RefusalKind.COLUMNS, "it reads column dose"),
        ({"max_epsilon": 0.5}, RefusalKind.POLICY, "privacy.epsilon=1.0"),
    ],
)
def test_a_policy_forbids_kinds_of_question_and_columns(
    questions: Looked, keys: dict[str, Any], kind: RefusalKind, why: str, accept: str
) -> None:
    verdict = judged(questions, Policy.model_validate(keys | {"accept": accept}))
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, kind)
    assert why in verdict.reason


def test_questions_that_pass_an_owners_lifetime_are_refused_with_what_is_left(
    questions: Looked,
) -> None:
    from tacit_services.member.run_cost import run_cost

    assert questions.definition is not None
    plan = questions.definition.plans.plan(3)
    once = (Spend(1.0, plan.noise_multiplier, 1, plan.mechanism),)
    lifetime = Lifetime.begun(1.5, 1e-5)
    policy = Policy(accept="within", lifetime_epsilon=1.5)
    fresh, spent = (
        replace(questions, cost=run_cost(questions.promise, history, lifetime))
        for history in ((), once)
    )
    assert judged(fresh, policy).answer is PolicyWord.ACCEPT
    verdict = judged(spent, policy)
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, RefusalKind.POLICY)
    assert spent.cost is not None
    assert spent.cost.lifetime is not None
    left = int(100 * (1 - spent.cost.lifetime.before))
    assert 0 < left < 50
    assert f"lifetime_epsilon=1.5: {left} % of it is left" in verdict.reason
    assert verdict.reason.endswith("pays for no answer of this run, with ε 1")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].code])
def test_code_is_allowed_by_its_hash_alone(kind: str, tmp_path: Path) -> None:
    # Given
    offer = offered(kind, tmp_path)
    place = fetched(offer, tmp_path / "member")
    site = Site(0, KINDS[kind].rows(tmp_path), rows=290)
    missing = look(offer.offer, place, site, KeyStanding.KNOWN)
    assert judged(missing, Policy()).kind is RefusalKind.CODE
    # When
    with_code(kind, tmp_path, place)
    there = look(offer.offer, place, site, KeyStanding.KNOWN)
    # Then
    (digest,) = offer.offer.code.values()
    assert judged(there, Policy()).kind is RefusalKind.CODE
    assert judged(there, Policy(code=("0" * 64,))).kind is RefusalKind.CODE
    assert judged(there, Policy(code=(digest,))).answer is PolicyWord.ASK


def test_a_file_that_was_changed_at_the_host_is_unavailable(tmp_path: Path) -> None:
    offer = offered("a module", tmp_path)
    place = fetched(offer, tmp_path / "member")
    (place / "model.graph.json").write_text("{}")
    site = Site(0, KINDS["a module"].rows(tmp_path))
    looked_at = look(offer.offer, place, site, KeyStanding.KNOWN)
    verdict = judged(looked_at, WITHIN)
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, RefusalKind.UNAVAILABLE)
    assert "model.graph.json" in verdict.reason


def test_a_reason_is_one_line_that_a_terminal_shows(tmp_path: Path) -> None:
    # Given: a column whose name writes a line of its own
    (tmp_path / "researcher").mkdir()
    honest = packed(tmp_path / "researcher", federations_run())
    hostile = "age\x1b[2J\nretina accepted"
    columns = [
        [hostile if name == "age" else name, keys]
        for name, keys in honest.offer.file["data"]["columns"]
    ]
    file = honest.offer.file | {"data": honest.offer.file["data"] | {"columns": columns}}
    site = Site(3, table(tmp_path / "mine.csv", 300, 5))
    folder = fetched(honest, tmp_path / "member")
    # When
    looked_at = look(changed(honest.offer, file=file), folder, site, KeyStanding.KNOWN)
    verdict = judged(looked_at, Policy(columns=("dose", "ill")))
    # Then
    assert verdict.kind is RefusalKind.COLUMNS
    assert verdict.reason.isprintable()
