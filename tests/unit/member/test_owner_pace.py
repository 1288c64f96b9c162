"""The owner's page answers its owner, whatever strangers on the same machine ask of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tacit_services.identity.ledger_loan import UNBOUND
from tacit_services.member.member_state import Membership, MemberState
from tacit_services.member.owner_page import check_address, owner_page
from tacit_services.member.owner_rest import TOKEN

from tacit.errors import ConfigError
from tests.unit.member.test_member_loop import offer
from tests.unit.member.test_withdrawing import come


@pytest.fixture
def state(tmp_path: Path) -> MemberState:
    state = MemberState(tmp_path / "state")
    state.keep(Membership("https://127.0.0.1:1", "edge-0", "St. Mary's", "rows.csv", "rows"))
    return state


@pytest.fixture
def page(state: MemberState, tmp_path: Path) -> Iterator[str]:
    with owner_page("127.0.0.1:0", state, tmp_path, UNBOUND) as words:
        match = re.search(r"http://\S+", words)
        assert match is not None
        yield match[0]


def asking(page: str, token: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=page, headers=headers, trust_env=False)


def test_the_owner_is_let_in_while_a_stranger_asks_too_often(page: str, state: MemberState) -> None:
    token = (state.folder / TOKEN).read_text().strip()
    with asking(page, "wrong") as stranger, asking(page, token) as owner:
        strangers, owners = set(), set()
        for _ in range(20):
            while (status := stranger.get("v1/me").status_code) != 429:
                strangers.add(status)
            owners.add(owner.get("v1/me").status_code)
    assert strangers == {401}
    assert owners == {200}


def test_an_offer_that_is_read_in_several_tabs_at_once_is_shown_in_each(
    page: str, state: MemberState
) -> None:
    come(state, offer("retina"))
    token = (state.folder / TOKEN).read_text().strip()
    with asking(page, token) as owner, ThreadPoolExecutor(8) as tabs:
        answers = list(tabs.map(lambda _: owner.get("v1/offers/retina").status_code, range(200)))
    assert set(answers) == {200}


@pytest.mark.parametrize("address", ["127.0.0.1:²", "127.0.0.1:٣", "127.0.0.1:99999", "127.0.0.1"])
def test_an_address_without_a_port_is_refused_in_words(address: str) -> None:
    with pytest.raises(ConfigError, match="expected HOST:PORT"):
        check_address(address)
