"""What an owner's page enters: taking back always works, accepting only what was read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tacit_services.member.answering import OwnerAnswers
from tacit_services.member.look_record import LastShown, shown_in
from tacit_services.member.member_state import MemberState
from tacit_services.member.owner_desk import OwnerDesk, StaleOfferError
from tacit_services.member.owner_rest import new_token

from tacit.errors import ConfigError
from tests.unit.member.test_member_loop import offer
from tests.unit.member.test_withdrawing import come


def test_what_was_accepted_is_taken_back_though_another_offer_has_come(tmp_path: Path) -> None:
    state = MemberState(tmp_path / "state")
    desk = OwnerDesk(state, tmp_path)
    first, second = offer("retina"), offer("retina", updates=99)
    come(state, first)
    desk.decide("retina", "accept", first.fingerprint, desk.offer("retina")["costs"])
    come(state, second)
    for action in ("accept", "decline"):
        with pytest.raises(StaleOfferError):
            desk.decide("retina", action, first.fingerprint)
    assert "withdrawn" in desk.decide("retina", "withdraw", first.fingerprint)
    assert not any(consent.holds for consent in state.consents().all())


def test_what_an_owner_accepts_is_what_they_have_read(tmp_path: Path) -> None:
    state = MemberState(tmp_path / "state")
    read, other = offer("retina"), offer("retina", updates=99)
    come(state, read)
    desk = OwnerDesk(state, tmp_path)
    costs = desk.offer("retina")["costs"]
    desk.decide("retina", "accept", read.fingerprint, costs)
    assert shown_in(state.run("retina")) == LastShown(read.fingerprint, costs)
    come(state, other)
    with pytest.raises(ConfigError, match="another offer has come"):
        OwnerAnswers(state, tmp_path).accept("retina")


def test_a_token_of_a_page_is_worth_nothing_after_it(tmp_path: Path) -> None:
    state = MemberState(tmp_path / "state")
    tokens = {new_token(state) for _ in range(3)}
    assert len(tokens) == 3
    assert (state.folder / "page-token").read_text().strip() in tokens
