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
def known(tmp_path_factory: pytest.TempPathFactory) -> Looked:
    """An offer whose researcher is known, and whose rows have been looked at."""
    folder = tmp_path_factory.mktemp("offer")
    (folder / "researcher").mkdir()
    offer = packed(folder / "researcher", federations_run())
    site = Site(3, table(folder / "mine.csv", 300, 5))
    seen = look(offer.offer, fetched(offer, folder / "member"), site, KeyStanding.KNOWN)
    return with_rows(seen, folder / "home", SlowSteps())


def test_an_owner_is_asked_unless_the_policy_says_otherwise(known: Looked) -> None:
    assert judged(known, Policy()) == OfferVerdict(PolicyWord.ASK)
    assert judged(known, WITHIN) == OfferVerdict(PolicyWord.ACCEPT)


def test_nothing_is_accepted_whose_rows_have_not_been_looked_at(known: Looked) -> None:
    assert judged(replace(known, cost=None), WITHIN).answer is PolicyWord.ASK


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
    known: Looked, what: str, accept: str
) -> None:
    keys, kind = POLICIES[what]
    verdict = judged(known, Policy.model_validate(keys | {"accept": accept}))
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, kind)
    assert next(iter(keys)) in verdict.reason


def test_a_policy_that_names_all_that_is_asked_accepts(known: Looked) -> None:
    policy = Policy(
        accept="within", max_epsilon=100.0, researchers=("Dr. Ada Weiß",),
        columns=("age", "dose", "ill"), algorithms=("fedasync",), lifetime_epsilon=4.0,
    )  # fmt: skip
    assert judged(known, policy).answer is PolicyWord.ACCEPT


@pytest.mark.parametrize("standing", [KeyStanding.NEW, KeyStanding.SEEN])
def test_a_name_whose_key_nobody_has_confirmed_is_taken_by_a_person_alone(
    known: Looked, standing: KeyStanding
) -> None:
    new = replace(known, standing=standing)
    assert judged(new, WITHIN).answer is PolicyWord.ACCEPT  # "*": whoever it is
    named = Policy(accept="within", researchers=("Dr. Ada Weiß",))
    assert judged(new, named).answer is PolicyWord.REFUSE
    assert judged(new, named).reason.endswith(f"offers accept {known.offer.run} --new-key")
    assert judged(new, named.model_copy(update={"accept": "ask"})).answer is PolicyWord.ASK


@pytest.mark.parametrize("policy", [Policy(), WITHIN])
def test_a_name_with_another_key_is_refused_by_every_policy(known: Looked, policy: Policy) -> None:
    verdict = judged(replace(known, standing=KeyStanding.OTHER_KEY), policy)
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, RefusalKind.POLICY)
    assert verdict.reason.endswith(f"offers accept {known.offer.run} --new-key")


@pytest.mark.parametrize("kind", list(RefusalKind))
def test_trouble_has_its_kind_and_its_words_are_the_owners(
    known: Looked, kind: RefusalKind
) -> None:
    verdict = judged(replace(known, trouble=Trouble(kind, "row 17 has 'Eve'")), WITHIN)
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, kind)


def test_what_the_policy_forbids_is_said_before_what_is_wrong_with_rows(known: Looked) -> None:
    seen = replace(known, trouble=Trouble(RefusalKind.UNAVAILABLE, "row 17"))
    assert judged(seen, Policy(max_epsilon=1.0)).kind is RefusalKind.POLICY


def test_a_run_without_a_guarantee_has_no_place_in_a_lifetime(tmp_path: Path) -> None:
    (tmp_path / "researcher").mkdir()
    privacy = {"mechanism": "none", "noise_multiplier": None}
    offer = packed(tmp_path / "researcher", federations_run(privacy=privacy))
    site = Site(3, table(tmp_path / "mine.csv", 300, 5))
    seen = look(offer.offer, fetched(offer, tmp_path / "member"), site, KeyStanding.KNOWN)
    seen = with_rows(seen, tmp_path / "home", SlowSteps())
    assert judged(seen, WITHIN).answer is PolicyWord.ACCEPT
    verdict = judged(seen, Policy(accept="within", lifetime_epsilon=4.0))
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, RefusalKind.POLICY)


def test_a_lifetime_that_pays_for_nothing_more_refuses(known: Looked) -> None:
    # Given
    from tacit_services.member.run_cost import run_cost

    lifetime = Lifetime.begun(4.0, 1e-5)
    spent = (Spend(0.125, 0.8, lifetime.left((), Spend(0.125, 0.8, 1)), "discrete_gaussian"),)
    assert known.definition is not None
    # When
    full = replace(known, cost=run_cost(known.definition, 3, (), lifetime))
    empty = replace(known, cost=run_cost(known.definition, 3, spent, lifetime))
    # Then
    policy = Policy(accept="within", lifetime_epsilon=4.0)
    assert judged(full, policy).answer is PolicyWord.ACCEPT
    assert full.cost is not None
    assert full.cost.lifetime is not None
    assert full.cost.lifetime.before == 0.0 < full.cost.lifetime.after <= 1.0
    assert full.cost.releases == full.cost.lifetime.releases < 60
    verdict = judged(empty, policy)
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, RefusalKind.POLICY)
    assert "lifetime_epsilon" in verdict.reason


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
    seen = look(offer.offer, place, site, KeyStanding.KNOWN)
    verdict = judged(seen, WITHIN)
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
    seen = look(changed(honest.offer, file=file), folder, site, KeyStanding.KNOWN)
    verdict = judged(seen, Policy(columns=("dose", "ill")))
    # Then
    assert verdict.kind is RefusalKind.COLUMNS
    assert verdict.reason.isprintable()
