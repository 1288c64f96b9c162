"""The aggregator's memory of the edges' ledgers: none may fall back, none may fork."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tacit_services.aggregator.ingest.ledger_continuity import LedgerContinuity
from tacit_services.journal.store import MAX_SEQ, Anchor

from tacit.errors import WireError
from tacit.privacy.ledger import UNCHARGED, Charged
from tacit.protocol.messages import Retired


def head(count: int, copy: int = 0) -> bytes:
    return bytes([copy]) * 24 + count.to_bytes(8, "big")


def said(count: int, copy: int = 0, edge: str = "edge-0") -> Retired:
    return Retired(edge, "", (), Charged(count, head(count, copy)) if count else UNCHARGED)


def verdict(anchors: LedgerContinuity, seq: int, message: Retired) -> str:
    try:
        anchor = anchors.check(message.edge, seq, message.charged)
    except WireError as refusal:
        return refusal.reason
    assert anchor == Anchor(f"digits/{message.edge}", message.charged.count, message.charged.head)
    return "ok"


def test_it_may_stand_still_and_go_on() -> None:
    anchors = LedgerContinuity("digits")
    assert [
        verdict(anchors, seq, said(count)) for seq, count in enumerate((0, 0, 1, 1, 2, 9), 1)
    ] == ["ok"] * 6


def test_falling_back_is_a_rollback_and_stays_one() -> None:
    anchors = LedgerContinuity("digits")
    assert verdict(anchors, 1, said(5)) == "ok"
    assert [verdict(anchors, seq, said(4)) for seq in (2, 3)] == ["rollback"] * 2
    assert verdict(anchors, 4, said(6)) == "ok"
    assert verdict(anchors, 1, said(4, edge="edge-1")) == "ok"


def test_another_history_of_the_same_length_is_a_clone() -> None:
    anchors = LedgerContinuity("digits")
    assert verdict(anchors, 1, said(5)) == "ok"
    assert verdict(anchors, 2, said(5, copy=1)) == "clone"
    assert (
        verdict(anchors, 1, said(6, copy=1)) == "clone"
    )  # other bytes under a number that was used
    assert verdict(anchors, 2, said(5)) == "ok"


def test_a_late_copy_of_an_older_message_is_not_judged() -> None:
    anchors = LedgerContinuity("digits")
    assert [verdict(anchors, seq, said(seq)) for seq in (1, 2, 3)] == ["ok"] * 3
    assert [verdict(anchors, seq, said(seq)) for seq in (1, 2, 3)] == ["ok"] * 3
    assert verdict(anchors, 4, said(2)) == "rollback"


def test_one_that_was_never_charged_has_no_history() -> None:
    anchors = LedgerContinuity("digits")
    assert [verdict(anchors, seq, said(0)) for seq in (1, 2)] == ["ok"] * 2
    assert verdict(anchors, 3, said(1)) == "ok"
    assert verdict(anchors, 4, said(0)) == "rollback"


def test_what_the_store_kept_is_demanded_in_a_new_run_whose_numbers_begin_again() -> None:
    anchors = LedgerContinuity("digits")
    anchors.load([Anchor("digits/edge-0", 5, head(5)), Anchor("mnist/edge-0", 9, head(9))], {}, {})
    assert verdict(anchors, 1, said(4)) == "rollback"
    assert verdict(anchors, 1, said(5, copy=1)) == "clone"
    assert verdict(anchors, 1, said(5)) == "ok"


def test_after_a_restart_the_last_messages_copy_is_fine_and_an_older_one_is_not_judged() -> None:
    anchors = LedgerContinuity("digits")
    anchors.load([Anchor("digits/edge-0", 5, head(5))], {"edge-0": 7}, {})
    assert verdict(anchors, 7, said(5)) == "ok"
    assert verdict(anchors, 6, said(4)) == "ok"
    assert verdict(anchors, 7, said(6, copy=1)) == "clone"
    assert verdict(anchors, 8, said(4)) == "rollback"
    assert verdict(anchors, 8, said(6)) == "ok"


def test_a_journal_from_before_the_anchors_is_replayed_and_counts() -> None:
    anchors = LedgerContinuity("digits")
    anchors.load([], {"edge-0": 7}, {"edge-0": Charged(5, b"")})
    assert verdict(anchors, 7, said(5)) == "clone"  # no head was said then, and none is no wildcard
    assert verdict(anchors, 8, said(4)) == "rollback"
    assert verdict(anchors, 8, said(6)) == "ok"


def test_loading_again_never_forgets() -> None:
    anchors = LedgerContinuity("digits")
    assert verdict(anchors, 3, said(6)) == "ok"
    anchors.load([Anchor("digits/edge-0", 5, head(5))], {"edge-0": 2}, {})
    assert verdict(anchors, 4, said(5)) == "rollback"


def test_a_count_that_no_store_can_keep_is_refused() -> None:
    assert verdict(LedgerContinuity("digits"), 1, said(MAX_SEQ + 1)) == "value"


@settings(derandomize=True, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=30))
def test_an_honest_edge_is_never_refused(steps: list[tuple[int, int]]) -> None:
    """Charge, report the state under the next number, and send the last message again."""
    anchors, count, sent = LedgerContinuity("digits"), 0, list[Retired]()
    for charges, again in steps:
        count += charges
        sent.append(said(count))
        for _ in range(1 + again):
            assert verdict(anchors, len(sent), sent[-1]) == "ok"
