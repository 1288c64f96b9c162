"""What an offer costs is counted when it is read, and an answer is to what was read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import httpx
import pytest
from tacit_services.disk import files
from tacit_services.identity.ledger_loan import LifetimeBound
from tacit_services.member import look_at_offer
from tacit_services.member.answering import CostsChanged, OwnerAnswers, as_lines, listed
from tacit_services.member.consent import KeyStanding
from tacit_services.member.cost_terms import CostTerms
from tacit_services.member.current_costs import CurrentCosts
from tacit_services.member.data_account import DataAccount
from tacit_services.member.host_client import HostClient, Offered
from tacit_services.member.judge import Judge
from tacit_services.member.look_record import LookRecord, record_in
from tacit_services.member.member_state import Membership, MemberState
from tacit_services.member.owner_desk import OwnerDesk
from tacit_services.member.owner_page import owner_page
from tacit_services.member.owner_terminal import OwnerTerminal
from tacit_services.member.run_cost import lifetime_share
from tacit_services.member.run_diary import RunDiary
from tacit_services.member.run_promise import RunPromise
from tacit_services.member.screen_text import text_of
from tacit_services.offers.offer import OFFER, Offer

from tacit.errors import ConfigError, PrivacyError
from tacit.privacy.policy import Policy
from tests.helpers.offered import key
from tests.helpers.servers import free_port
from tests.unit.member.test_member_loop import offer
from tests.unit.member.test_rolled_back import OWNED, train

BOUND = LifetimeBound(4.0, 1e-5)
# A release of `train`, whose 110 take 0.48 of BOUND.
LARGE = RunPromise(0.1, 2.0, "gaussian", 110, 3.0, 1e-5)


class Site:
    """A member with a ledger in a folder, to whom offers come."""

    def __init__(self, folder: Path, bound: LifetimeBound = BOUND) -> None:
        self.folder = folder
        self.bound = bound
        self.state = MemberState(folder / "state")
        self.state.keep(
            Membership("https://host:1", "edge-3", "St. Mary's", "rows.csv", OWNED.name)
        )
        self.answers = OwnerAnswers(self.state, folder / "home")
        self.desk = OwnerDesk(self.state, folder / "home", bound)

    def come(
        self,
        offered: Offer,
        answer: str = "ask",
        *,
        unconfirmed: bool = False,
        promise: RunPromise = LARGE,
    ) -> Offer:
        """Let an offer have come, whose run may take what is in `promise`."""
        folder = self.state.run(offered.run)
        files.write(folder / OFFER, offered.content(), files.SECRET)
        terms = CostTerms("one row", "gaussian", bound=self.bound)
        sections = (("Who asks", (("name", offered.researcher.name),)),)
        LookRecord(
            offered.fingerprint, answer, "", "another key", sections, promise, terms,
            offered.researcher.name, 1_800_000_000.0, unconfirmed,
        ).keep(folder)  # fmt: skip
        return offered

    def screen(self, run: str) -> str:
        """Return what an owner reads of an offer, in one line."""
        return " ".join(text_of(self.answers.show(run).sections).split())

    def accept(self, run: str) -> None:
        """Read an offer on the page, and accept it."""
        read = self.desk.offer(run)
        self.desk.decide(run, "accept", read["fingerprint"], read["costs"])


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_what_is_promised_to_another_run_is_counted_as_soon_as_it_is_accepted(site: Site) -> None:
    # Given: two offers wait
    site.come(offer("first"))
    site.come(offer("second"))
    alone = site.screen("second")
    assert "0 % is spent, 0 % is promised, and 100 % is left" in alone
    # When
    site.accept("first")
    # Then
    both = site.screen("second")
    assert "another ε 2.455" in both.partition("promised")[2]
    assert "to first, which is accepted" in both
    assert "0 % is spent, 48 % is promised, and 52 % is left; this run takes 48 % at most" in both
    assert "in all at most ε 3.536 after this run, with what is promised" in both
    # And what was withdrawn is promised no more.
    site.answers.withdraw("first")
    assert "0 % is promised, and 100 % is left" in site.screen("second")


def test_where_runs_ask_for_more_than_the_bound_the_screen_says_that_it_stops_them(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path, LifetimeBound(3.0, 1e-5))
    for run in ("first", "second", "third"):
        site.come(offer(run))
    for run in ("first", "second"):
        site.accept(run)
    screen = site.screen("third")
    assert "in all at most ε 3: your bound stops it there. Without it these runs" in screen
    assert "171 % is promised, and 0 % is left; this run asks for 86 %" in screen
    assert "so it gets what promised runs do not use" in screen
    assert "runs together cost less than the sum of their ε" in screen


@pytest.mark.parametrize("change", ["accepted", "withdrawn", "ended", "key"])
def test_nothing_is_accepted_at_costs_that_were_not_shown(site: Site, change: str) -> None:
    # Given: an owner reads an offer, and before they answer it costs something else
    changes: dict[str, Callable[[], object]] = {
        "accepted": lambda: site.accept("first"),
        "withdrawn": lambda: site.answers.withdraw("first"),
        "ended": lambda: RunDiary(first.fingerprint, state="stopped").keep(site.state.run("first")),
        "key": lambda: site.answers.confirm("second"),
    }
    first = site.come(offer("first"))
    second = site.come(offer("second"))
    if change in ("withdrawn", "ended"):
        site.accept("first")
    read = site.desk.offer("second")
    changes[change]()
    if change == "key":
        site.come(second)  # it is looked at anew
    # When
    with pytest.raises(CostsChanged, match="has changed since you were shown it"):
        site.desk.decide("second", "accept", second.fingerprint, read["costs"])
    # Then
    assert site.state.consents().to(second) is None
    site.accept("second")
    assert site.state.consents().to(second) is not None


def test_the_command_accepts_what_it_has_shown_and_no_other_costs(site: Site) -> None:
    site.come(offer("first"))
    second = site.come(offer("second"))
    site.answers.show("second")
    site.accept("first")
    with pytest.raises(ConfigError, match="look again: `tacit offers show second`"):
        site.answers.accept("second")
    assert site.state.consents().to(second) is None
    site.answers.show("second")
    site.answers.accept("second")
    assert site.state.consents().to(second) is not None


@pytest.mark.parametrize(
    ("bound", "accepted"), [(LifetimeBound(), 1), (BOUND, 1), (BOUND, 2), (BOUND, 3)]
)
def test_what_an_accepted_run_spends_of_its_promise_changes_no_other_offer(
    tmp_path: Path, bound: LifetimeBound, accepted: int
) -> None:
    site = Site(tmp_path, bound)
    runs = [site.come(offer(f"run-{number}")) for number in range(accepted)]
    site.come(offer("waits"))
    for run in runs:
        site.accept(run.run)
    before = site.answers.show("waits")
    train(site.folder, runs[0].fingerprint, 40)
    after = site.answers.show("waits")
    assert before.costs == after.costs
    assert before.sections != after.sections  # what was promised is spent by now


def test_rest_answers_409_in_one_line_and_takes_the_answer_to_the_new_costs(site: Site) -> None:
    site.come(offer("first"))
    second = site.come(offer("second"))
    address = f"127.0.0.1:{free_port()}"
    with owner_page(address, site.state, site.folder / "home", site.bound):
        token = (site.state.folder / "page-token").read_text().strip()
        accepts_at_new_costs(site, f"http://{address}", token, second)


def accepts_at_new_costs(site: Site, url: str, token: str, second: Offer) -> None:
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as client:
        read = client.get("/v1/offers/second").json()
        site.accept("first")

        path, answer = "/v1/offers/second/accept", {"fingerprint": second.fingerprint}
        for costs in ({}, {"costs": read["costs"]}):
            refused = client.post(path, json=answer | costs)
            assert refused.status_code == 409
            assert refused.headers["Content-Type"] == "application/problem+json"
            assert "\n" not in refused.json()["detail"]
            assert "tacit offers" not in refused.json()["detail"]
        costs = {"costs": client.get("/v1/offers/second").json()["costs"]}
        assert client.post(path, json=answer | costs).status_code == 200


def test_an_owner_at_the_terminal_is_asked_again_at_the_new_costs(site: Site) -> None:
    # Given: while they think, they accept another offer on the page
    site.come(offer("first"))
    second = site.come(offer("second"))
    printed: list[str] = []

    def read(prompt: str) -> str:
        if len(printed) == 1:
            site.accept("first")
        return "yes"

    record = record_in(site.state.run("second"))
    assert record is not None
    # When
    OwnerTerminal(site.state, site.folder / "home", printed.append, read).ask_now(second, record)
    # Then
    assert "which is accepted" not in " ".join(printed[0].split())
    assert "has changed since you were shown it" in printed[1]
    assert "which is accepted" in " ".join(printed[2].split())
    consent = site.state.consents().to(second)
    assert consent is not None
    assert consent.holds


def test_what_the_ledger_has_spent_since_an_offer_came_is_counted(site: Site) -> None:
    site.come(offer("second"))
    assert "spent ε 0 by this data" in site.screen("second")
    train(site.folder, "another member's", 40)
    assert "spent ε 0 by this data" not in site.screen("second")
    assert "is spent, 0 % is promised" in site.screen("second")


def test_a_bound_is_counted_at_the_order_that_the_ledger_has(tmp_path: Path) -> None:
    # Given: a ledger that began under one bound, whose owner states another by now
    train(tmp_path, "a run of before", 1)
    other = LifetimeBound(16.0, 1e-5)
    assert other.order != BOUND.order
    site = Site(tmp_path, other)
    site.come(offer("first"))
    # When
    record = record_in(site.state.run("first"))
    assert record is not None
    now = CurrentCosts(site.state, tmp_path / "home").of("first", record)
    # Then
    at_order = other.at(BOUND.order)
    assert at_order is not None
    assert now is not None
    assert now.lifetime is not None
    spent = DataAccount.of([OWNED.name], tmp_path / "home").whole
    assert now.lifetime == lifetime_share(at_order, spent, {}, (LARGE.some(110),), 110)


def test_a_key_that_was_confirmed_with_one_offer_is_known_with_every_other(site: Site) -> None:
    site.come(offer("first"))
    site.come(offer("second"))
    assert "New here" in site.screen("second")
    site.accept("first")
    screen = site.screen("second")
    assert "New here" not in screen
    assert "Known: you have confirmed this key for this name." in screen
    assert "Accepting confirms it" not in screen


def test_offers_that_were_refused_for_a_key_are_looked_at_anew_once_it_is_confirmed(
    site: Site,
) -> None:
    mallory = key("ada", seed=7)
    foreign = offer("third").model_copy(update={"researcher": mallory.public()})
    site.come(offer("first"))
    site.come(offer("second"), "refuse", unconfirmed=True)
    site.come(mallory.signed(foreign), "refuse", unconfirmed=True)
    site.accept("first")
    assert record_in(site.state.run("second")) is None
    assert record_in(site.state.run("third")) is not None
    # The page confirms a key without a command.
    assert site.desk.offer("third")["actions"] == ["confirm"]
    site.desk.decide("third", "confirm", site.desk.offer("third")["fingerprint"])
    assert site.state.consents().standing(mallory.signed(foreign)) is KeyStanding.KNOWN


def test_an_offer_whose_name_was_confirmed_with_another_key_is_confirmed_first(site: Site) -> None:
    # Given: two offers wait under one name, by two keys
    mallory = key("ada", seed=7)
    foreign = mallory.signed(offer("third").model_copy(update={"researcher": mallory.public()}))
    site.come(offer("first"))
    site.come(foreign)
    assert site.desk.offer("third")["actions"] == ["accept", "decline"]
    site.accept("first")
    assert "ANOTHER KEY" in site.screen("third")
    assert site.desk.offer("third")["actions"] == ["confirm", "decline"]
    with pytest.raises(
        ConfigError, match=r"another key than before; where they say .*confirm it first"
    ):
        site.accept("third")


def test_a_look_of_an_earlier_tacit_shows_no_cost_and_is_not_accepted(site: Site) -> None:
    first = site.come(offer("first"))
    path = site.state.run("first") / "look.json"
    older = json.loads(path.read_text())
    for part in ("terms", "researcher", "offered_at", "unconfirmed"):
        del older[part]
    older["sections"].append(["What it may cost", [["this run", "ε 1"]]])
    path.write_text(json.dumps(older))
    assert "What it may cost" not in site.screen("first")
    with pytest.raises(ConfigError, match="looked at anew when this member starts"):
        site.answers.accept("first")
    assert site.state.consents().to(first) is None


def test_what_is_spent_promised_and_left_of_the_bound_is_all_of_it(site: Site) -> None:
    first = site.come(offer("first"))
    site.accept("first")
    train(site.folder, first.fingerprint, 40)
    lifetime = site.desk.ledger()["lifetime"]
    assert lifetime["spent"] + lifetime["promised"] + lifetime["left"] == 100
    assert min(lifetime[part] for part in ("spent", "promised", "left")) > 0
    assert (lifetime["epsilon"], lifetime["delta"], lifetime["runs"]) == (4.0, 1e-5, ["first"])
    assert Site(site.folder / "other", LifetimeBound()).desk.ledger()["lifetime"] is None


def test_the_list_and_the_ledger_tell_the_same_of_a_run(site: Site) -> None:
    first = site.come(offer("first"))
    site.accept("first")
    train(site.folder, first.fingerprint, 40)
    (row,) = site.desk.offers()
    (run,) = site.desk.ledger()["runs"]
    assert {part: run[part] for part in row["cost"]} == row["cost"]
    assert run["researcher"] == row["researcher"] == "ada"


def test_how_an_offer_ended_is_read_in_place_of_what_it_may_cost(site: Site) -> None:
    ended = site.come(offer("ended"))
    site.accept("ended")
    train(site.folder, ended.fingerprint, 40)
    RunDiary(ended.fingerprint, ended=1_800_000_100.0, state="ended").keep(site.state.run("ended"))
    declined = site.come(offer("declined"))
    site.desk.decide("declined", "decline", declined.fingerprint)
    screen = site.screen("ended")
    assert "What it may cost" not in screen
    assert "in 40 releases" in screen
    assert "Its run is over (ended) on 2027-01-15" in screen
    assert "You accepted it on" in screen
    assert "You declined it on" in site.screen("declined")
    rows = {row["run"]: row for row in site.desk.offers()}
    assert rows["declined"]["cost"] is None
    assert (rows["ended"]["actions"], rows["declined"]["actions"]) == ([], ["accept"])
    with pytest.raises(ConfigError, match="is over"):
        site.answers.accept("ended")
    site.accept("declined")
    assert {row["run"]: row["answer"] for row in site.desk.offers()}["declined"] == "accepted"


def test_why_an_offer_was_refused_is_read_after_its_run_as_well(site: Site) -> None:
    refused = site.come(offer("refused"), "refuse")
    RunDiary(refused.fingerprint, ended=1_800_000_100.0, state="stopped").keep(
        site.state.run("refused")
    )
    screen = site.screen("refused")
    assert "Its run is over (stopped) on 2027-01-15" in screen
    assert "This offer was refused: another key. Nothing has left." in screen


def test_a_run_that_was_withdrawn_is_listed_with_what_it_cost(site: Site) -> None:
    first = site.come(offer("first"))
    site.accept("first")
    train(site.folder, first.fingerprint, 40)
    site.answers.withdraw("first")
    (line,) = as_lines(listed(site.state, site.folder / "home")).split("\n")
    assert line.split(maxsplit=1)[1].startswith("withdrawn, ε 1.")
    assert line.endswith("of 3")


def test_offers_that_wait_come_first_and_one_that_is_looked_at_is_listed(site: Site) -> None:
    site.come(offer("a-declined"))
    site.answers.decline("a-declined")
    site.come(offer("b-waits"))
    with site.state.looking("c-new"):
        rows = site.desk.offers()
    assert [(row["run"], row["answer"]) for row in rows] == [
        ("b-waits", "waits for you"),
        ("a-declined", "declined"),
        ("c-new", "is looked at"),
    ]
    assert "c-new" not in {row["run"] for row in site.desk.offers()}


def test_a_damaged_ledger_is_no_ledger_without_releases(site: Site) -> None:
    site.come(offer("first"))
    path = train(site.folder, "another", 3)
    path.write_bytes(b"SQLite format 3\0" + b"?" * 4096)
    with pytest.raises(PrivacyError):
        site.answers.show("first")


class Shelf:
    """A host with one offer, and no file."""

    def __init__(self, offered: Offer) -> None:
        self._offered = offered

    def offer(self, run: str) -> bytes:
        return self._offered.content()


@pytest.mark.parametrize("meanwhile", [0, 5000])
def test_a_policy_accepts_nothing_once_what_was_left_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: int
) -> None:
    # Given: a policy accepts, and while it looks another run spends all that the bound allows
    site = Site(tmp_path)
    first = offer("first")

    def looked_at(state: MemberState, *_: object) -> LookRecord:
        site.come(first, "accept")
        lifetime = BOUND.at(BOUND.order)
        assert lifetime is not None
        if meanwhile:
            train(tmp_path, "another", lifetime.left((), LARGE.some(1)))
        record = record_in(state.run("first"))
        assert record is not None
        return record

    monkeypatch.setattr(look_at_offer, "looked_at", looked_at)
    host = cast(HostClient, Shelf(first))
    policy = Policy(accept="within")
    judge = Judge(host, site.state, policy, lambda *_: None, tmp_path / "home")
    # When
    judge.look(Offered("first", first.fingerprint, "offered"))
    # Then: nothing is accepted, and the policy looks again
    accepted = site.state.consents().to(first) is not None
    assert accepted == (meanwhile == 0)
    assert (record_in(site.state.run("first")) is None) == (meanwhile > 0)
