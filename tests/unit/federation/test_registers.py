"""A federation's members, the people who use it, and its join tokens."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fastapi import HTTPException
from fastapi.security import HTTPAuthorizationCredentials
from hypothesis import given
from hypothesis import strategies as st
from tacit_services.enrollment.human_names import checked_human_name
from tacit_services.enrollment.join_tokens import (
    EACH_HOUR,
    JoinTokens,
    TokenRefusedError,
    TooManyError,
)
from tacit_services.federation.members import SAVED_EVERY, Members, NotAdmittedError
from tacit_services.federation.people import People, Right
from tacit_services.federation.person_access import PersonAccess

from tacit.errors import ConfigError

KEYS = [f"{number:064x}" for number in range(10)]
NOW = datetime(2026, 12, 1, tzinfo=UTC).timestamp()


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class TestMembers:
    def test_a_new_key_gets_the_next_number_and_keeps_it(self, tmp_path: Path) -> None:
        members = Members(tmp_path, lambda: NOW)
        first = members.admit(KEYS[0], "St. Mary's", "clinic", "0.3")
        second = members.admit(KEYS[1], None, "clinic", "0.3")
        assert [(m.id, m.name, m.since) for m in (first, second)] == [
            ("edge-0", "St. Mary's", NOW),
            ("edge-1", "clinic-1", NOW),
        ]
        assert members.admit(KEYS[0], "Another", "x", "0.4") == first
        again = Members(tmp_path)
        assert again.all() == [first, second]
        assert again.get("edge-1") == second
        assert again.get("edge-2") is None
        assert members.named("St. Mary's") == members.named("edge-0") == first
        with pytest.raises(ConfigError, match="no member has this name"):
            members.named("nobody")

    @pytest.mark.parametrize("name", ["edge-0", "Edge-0", "edge-12"])
    def test_nobody_takes_anothers_place_by_a_name(self, tmp_path: Path, name: str) -> None:
        members = Members(tmp_path)
        first = members.admit(KEYS[0], "St. Mary's", "clinic", "")
        with pytest.raises(NotAdmittedError, match="reads like a member's id"):
            members.admit(KEYS[1], name, "x", "")
        second = members.admit(KEYS[1], None, name.rpartition("-")[0], "")
        assert second.name == "member-1"
        assert members.revoke("edge-0").key == first.key

    def test_an_id_comes_before_a_name_of_old(self, tmp_path: Path) -> None:
        members = Members(tmp_path)
        first = members.admit(KEYS[0], "St. Mary's", "clinic", "")
        members.admit(KEYS[1], "decoy", "x", "")
        text = members._file.path.read_text()
        members._file.path.write_text(text.replace("decoy", "edge-0"))
        assert members.named("edge-0") == first

    def test_a_name_without_one_is_made_of_the_machines(self, tmp_path: Path) -> None:
        members = Members(tmp_path)
        members.admit(KEYS[0], "clinic-1", "x", "")
        machines = ("clinic", "clinic", "", "a\nb", "x" * 100)
        names = [members.admit(KEYS[i + 1], None, m, "").name for i, m in enumerate(machines)]
        assert names == ["clinic-2", "clinic-3", "member-1", "member-2", "member-3"]

    @pytest.mark.parametrize("name", ["A", "a", "\uff21"])
    def test_two_members_have_no_name_that_looks_the_same(self, tmp_path: Path, name: str) -> None:
        members = Members(tmp_path)
        members.admit(KEYS[0], "A", "x", "")
        with pytest.raises(NotAdmittedError, match="taken by edge-0; choose another with --as"):
            members.admit(KEYS[1], name, "x", "")
        assert len(members.all()) == 1

    @pytest.mark.parametrize(
        "name",
        [
            "",
            " a",
            "a ",
            "a  b",
            "a\tb",
            "\x1b[31m",
            "\u202ea",
            "a\u200bb",
            "x" * 101,
            "e\u0301",
            "a/b",
            "a\\b",
            ".",
            "..",
        ],
    )
    def test_what_cannot_be_shown_in_a_line_is_no_name(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(ConfigError, match=r"^name="):
            Members(tmp_path).admit(KEYS[0], name, "x", "")

    def test_who_was_admitted_under_a_name_of_old_comes_back(self, tmp_path: Path) -> None:
        members = Members(tmp_path)
        members.admit(KEYS[0], "old", "x", "")
        members._file.path.write_text(members._file.path.read_text().replace("old", "a/b"))
        assert members.admit(KEYS[0], "a/b", "x", "").name == "a/b"
        assert members.revoke("a/b").id == "edge-0"

    @given(st.text(max_size=120))
    def test_every_text_is_a_name_or_refused_in_one_line(self, name: str) -> None:
        try:
            answer = checked_human_name("name", name)
        except ConfigError as error:
            answer = str(error)
        assert answer.isprintable()

    def test_who_was_revoked_stays_out_and_its_number_is_never_given_again(
        self, tmp_path: Path
    ) -> None:
        members = Members(tmp_path, lambda: NOW)
        members.admit(KEYS[0], "A", "x", "")
        gone = members.revoke("A")
        assert gone.revoked == NOW
        assert members.revoke("edge-0") == gone
        with pytest.raises(NotAdmittedError, match=r"'A' \(edge-0\) was revoked"):
            members.admit(KEYS[0], "B", "x", "")
        # Another machine may have the name, under another number.
        successor = members.admit(KEYS[1], "A", "x", "")
        assert (successor.id, successor.revoked) == ("edge-1", None)
        assert members.named("A") == successor
        assert members.get("edge-0") == gone

    def test_who_has_left_comes_back_with_its_key_to_its_number_and_name(
        self, tmp_path: Path
    ) -> None:
        members = Members(tmp_path, lambda: NOW)
        first = members.admit(KEYS[0], "A", "x", "")
        assert members.leave("edge-0").left == NOW
        with pytest.raises(NotAdmittedError, match="the name 'A' is taken by edge-0"):
            members.admit(KEYS[1], "A", "x", "")
        assert members.admit(KEYS[0], "B", "x", "") == first
        assert members.get("edge-0") == first
        with pytest.raises(ConfigError, match="no member has this id"):
            members.leave("edge-7")

    def test_no_answer_is_waited_for_of_a_member_that_is_none_any_more(
        self, tmp_path: Path
    ) -> None:
        members = Members(tmp_path, lambda: NOW)
        for key, name in zip(KEYS[:3], "ABC", strict=True):
            members.admit(key, name, "x", "")
        members.leave("edge-0")
        members.revoke("edge-1")
        assert members.roll().asked == ["edge-2"]
        members.admit(KEYS[0], "A", "x", "")  # back by its key
        assert members.roll().asked == ["edge-0", "edge-2"]

    def test_many_that_ask_at_once_get_numbers_of_their_own(self, tmp_path: Path) -> None:
        def ask(key: str) -> None:
            Members(tmp_path).admit(key, None, "m", "")

        threads = [threading.Thread(target=ask, args=(key,)) for key in KEYS * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        everybody = Members(tmp_path).all()
        assert [member.number for member in everybody] == list(range(10))
        assert {member.key for member in everybody} == set(KEYS)
        assert len({member.name for member in everybody}) == 10

    def test_when_a_member_was_heard_of_is_written_once_in_a_while(self, tmp_path: Path) -> None:
        clock = Clock()
        members = Members(tmp_path, clock)
        members.heard("edge-0", "0.3")
        assert Members(tmp_path).last_heard("edge-0") is None
        clock.now += SAVED_EVERY
        members.heard("edge-0")
        heard = Members(tmp_path).last_heard("edge-0")
        assert heard is not None
        assert (heard.at, heard.version) == (NOW + SAVED_EVERY, "0.3")
        members.heard("edge-1")
        members.save()
        assert Members(tmp_path).last_heard("edge-1") is not None

    def test_a_damaged_or_later_file_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "members.json"
        for text, why in (
            ("{", "Expecting"),
            ('{"format": 2, "members": []}', "a newer one has written it"),
            ('{"format": 1, "members": [{"number": "x"}]}', "number"),
            ("[]", "members.json"),
        ):
            path.write_text(text)
            with pytest.raises(ConfigError, match=why):
                Members(tmp_path).all()
        assert path.read_text() == "[]"


class TestPeople:
    def test_a_token_is_of_one_person_with_one_right(self, tmp_path: Path) -> None:
        people = People(tmp_path, lambda: NOW)
        anna, rob = people.add("Anna", Right.RESEARCHER), people.add("Rob", Right.READER)
        assert [(p.name, p.right) for p in map(people.person, (anna, rob)) if p] == [
            ("Anna", Right.RESEARCHER),
            ("Rob", Right.READER),
        ]
        operator = people.person(people.operator_token())
        assert operator is not None
        assert all(operator.may(right) for right in Right)
        researcher, reader = people.person(anna), people.person(rob)
        assert researcher is not None
        assert reader is not None
        assert [researcher.may(right) for right in Right] == [True, True, False]
        assert [reader.may(right) for right in Right] == [True, False, False]
        for wrong in ("", "guess", anna[:-1], anna + "x"):
            assert people.person(wrong) is None

    def test_only_digests_are_kept_and_nobody_else_may_read_them(self, tmp_path: Path) -> None:
        token = People(tmp_path).add("Anna", Right.READER)
        path = tmp_path / "people.json"
        assert token not in path.read_text()
        assert path.stat().st_mode & 0o777 == 0o600
        People(tmp_path).operator_token()
        assert (tmp_path / "operator").stat().st_mode & 0o777 == 0o600

    def test_a_token_ends_by_its_date_or_when_it_is_taken_back(self, tmp_path: Path) -> None:
        clock = Clock()
        people = People(tmp_path, clock)
        anna, rob = people.add("Anna", Right.READER, NOW + 10), people.add("Rob", Right.READER)
        clock.now += 11
        assert people.person(anna) is None
        assert people.person(rob) is not None
        assert People(tmp_path).remove("Rob")
        assert people.person(rob) is None
        assert not people.remove("Rob")

    @pytest.mark.parametrize("name", ["Anna", "ANNA", "operator", "Operator", "a\nb"])
    def test_a_name_is_of_one_person(self, tmp_path: Path, name: str) -> None:
        people = People(tmp_path)
        people.add("Anna", Right.READER)
        with pytest.raises(ConfigError, match=r"^name="):
            people.add(name, Right.READER)

    def test_a_right_has_a_name(self) -> None:
        assert Right.named("researcher") is Right.RESEARCHER
        with pytest.raises(
            ConfigError, match="role='king': expected reader, researcher or operator"
        ):
            Right.named("king")


class TestPersonAccess:
    def test_a_right_is_asked_for_and_a_lesser_one_is_refused(self, tmp_path: Path) -> None:
        people = People(tmp_path)
        access = PersonAccess(people)
        token = bearer(people.add("Anna", Right.RESEARCHER))
        assert access.person(token).name == "Anna"
        access.at_least(Right.READER)(token)
        access.at_least(Right.RESEARCHER)(token)
        for credentials, right, status in (
            (token, Right.OPERATOR, 403),
            (bearer("guess"), Right.READER, 401),
            (None, Right.READER, 401),
        ):
            with pytest.raises(HTTPException) as refused:
                access.at_least(right)(credentials)
            assert refused.value.status_code == status


def bearer(token: str) -> HTTPAuthorizationCredentials:
    return HTTPAuthorizationCredentials(scheme="Bearer", credentials=token)


class TestJoinTokens:
    def test_a_token_serves_as_many_keys_as_it_is_for(self, tmp_path: Path) -> None:
        tokens = JoinTokens(tmp_path)
        two, any_number = tokens.add("two", uses=2), tokens.add("any")
        for key in (KEYS[0], KEYS[1], KEYS[0], KEYS[1]):
            tokens.serve(two, key)
        with pytest.raises(TokenRefusedError, match="was for 2 and is used up") as refused:
            tokens.serve(two, KEYS[2])
        assert "\n" not in str(refused.value)
        for key in KEYS:
            tokens.serve(any_number, key)
        assert [(t.name, t.left) for t in JoinTokens(tmp_path).all()] == [("two", 0), ("any", None)]

    def test_a_token_ends_by_its_date_or_when_it_is_cancelled(self, tmp_path: Path) -> None:
        clock = Clock()
        tokens = JoinTokens(tmp_path, clock)
        dated, other = tokens.add("dated", until=NOW + 60), tokens.add("other")
        tokens.check(dated)
        clock.now += 60
        for ask in (tokens.check, lambda token: tokens.serve(token, KEYS[0])):
            with pytest.raises(TokenRefusedError, match="ended on 2026-12-01 00:01 UTC"):
                ask(dated)
        assert JoinTokens(tmp_path).cancel("other")
        with pytest.raises(TokenRefusedError, match="unknown, or was cancelled"):
            tokens.check(other)
        assert not tokens.cancel("other")

    def test_only_digests_are_kept(self, tmp_path: Path) -> None:
        token = JoinTokens(tmp_path).add("one", uses=1)
        path = tmp_path / "join-tokens.json"
        assert token not in path.read_text()
        assert path.stat().st_mode & 0o777 == 0o600
        assert json.loads(path.read_text())["format"] == 1

    def test_what_makes_no_sense_is_refused(self, tmp_path: Path) -> None:
        tokens = JoinTokens(tmp_path, lambda: NOW)
        tokens.add("one")
        for name, uses, until, why in (
            ("one", None, None, "is taken"),
            ("", None, None, "name="),
            ("two", 0, None, "uses=0"),
            ("two", None, NOW - 1, "is over already"),
        ):
            with pytest.raises(ConfigError, match=why):
                tokens.add(name, uses=uses, until=until)
        assert [token.name for token in tokens.all()] == ["one"]

    def test_many_that_come_at_once_are_no_more_than_it_is_for(self, tmp_path: Path) -> None:
        token = JoinTokens(tmp_path).add("three", uses=3)
        served = []

        def ask(key: str) -> None:
            try:
                JoinTokens(tmp_path).serve(token, key)
                served.append(key)
            except TokenRefusedError:
                pass

        threads = [threading.Thread(target=ask, args=(key,)) for key in KEYS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(served) == 3

    def test_a_token_for_any_number_admits_so_many_an_hour(self, tmp_path: Path) -> None:
        now = [NOW]
        tokens = JoinTokens(tmp_path, lambda: now[0])
        token = tokens.add("any")
        for number in range(EACH_HOUR):
            tokens.serve(token, f"key {number}")
        with pytest.raises(TooManyError, match="100 machines an hour; try again in 60 min"):
            tokens.serve(token, "another")
        tokens.serve(token, "key 0")  # an answer that was lost can be had again
        now[0] += 3600
        tokens.serve(token, "another")

    def test_a_token_for_a_number_admits_them_at_once(self, tmp_path: Path) -> None:
        tokens = JoinTokens(tmp_path)
        token = tokens.add("many", uses=EACH_HOUR + 1)
        for number in range(EACH_HOUR + 1):
            tokens.serve(token, f"key {number}")
