"""The hash chain: it holds exactly the rows it was made of, in their order."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.privacy.ledger.chain import Chain, LedgerRow, first_head, next_head

steady = settings(derandomize=True, deadline=None, max_examples=200)
LINEAGE = bytes(range(16))
FLOATS = st.sampled_from([(0.1).hex(), (1.5).hex(), (1.0).hex()])
ROWS = st.builds(
    LedgerRow,
    st.sampled_from([b"a" * 16, b"b" * 16]),
    FLOATS,
    FLOATS,
    st.sampled_from(["gaussian", "knorm"]),
    st.booleans(),
    st.integers(1, 5),
    st.just(b""),
)


def chained(rows: list[LedgerRow]) -> Chain:
    head, count, entries = first_head(LINEAGE, "data"), 0, []
    for row in rows:
        head = next_head(head, count, row)
        count += row.count
        entries.append(replace(row, head=head))
    return Chain("data", LINEAGE, count, head, tuple(entries))


def naive(rows: list[LedgerRow]) -> bytes:
    """Return the same head by the formula, a charge at a time."""

    def field(value: bytes) -> bytes:
        return len(value).to_bytes(4, "big") + value

    head, n = hashlib.sha256(b"tacit ledger" + field(LINEAGE) + field(b"data")).digest(), 0
    for row in rows:
        texts = [row.sampling_rate, row.noise_multiplier, row.mechanism]
        values = [row.session, *(text.encode() for text in texts), bytes([row.secret])]
        for _ in range(row.count):
            head = hashlib.sha256(
                head + n.to_bytes(8, "big") + b"".join(map(field, values))
            ).digest()
            n += 1
    return head


@steady
@given(st.lists(ROWS, max_size=6))
def test_the_head_is_the_formulas_and_the_chain_is_accepted(rows: list[LedgerRow]) -> None:
    chain = chained(rows)
    assert chain.head == naive(rows)
    chain.verify()


def edited(rows: tuple[LedgerRow, ...], draw: st.DataObject) -> tuple[LedgerRow, ...]:
    """Return the rows with one edit of one row, or of the order."""
    place = draw.draw(st.integers(0, len(rows) - 1))
    row, before, after = rows[place], rows[:place], rows[place + 1 :]
    match draw.draw(st.sampled_from(["drop", "double", "swap", "field", "count", "head"])):
        case "drop":
            return before + after
        case "double":
            return (*before, row, row, *after)
        case "swap":
            other = draw.draw(st.integers(0, len(rows) - 1))
            swapped = list(rows)
            swapped[place], swapped[other] = swapped[other], swapped[place]
            return tuple(swapped)
        case "count":
            changed = replace(row, count=draw.draw(st.integers(-1, 9)))
        case "head":
            changed = replace(row, head=draw.draw(st.binary(min_size=32, max_size=32)))
        case _:
            changed = replace(draw.draw(ROWS), count=row.count, head=row.head)
    return (*before, changed, *after)


@steady
@given(st.lists(ROWS, min_size=1, max_size=6), st.data())
def test_any_edit_of_any_row_is_noticed(rows: list[LedgerRow], draw: st.DataObject) -> None:
    chain = chained(rows)
    changed = replace(chain, rows=edited(chain.rows, draw))
    if changed == chain:
        chain.verify()
        return
    with pytest.raises(ValueError, match="data"):
        changed.verify()


@steady
@given(
    st.lists(ROWS, min_size=1, max_size=4), st.integers(-3, 3), st.binary(min_size=32, max_size=32)
)
def test_where_it_ends_belongs_to_it(rows: list[LedgerRow], more: int, head: bytes) -> None:
    chain = chained(rows)
    for changed in (
        replace(chain, head=head),
        replace(chain, dataset="other"),
        replace(chain, lineage=bytes(16)),
        replace(chain, count=chain.count + (more or 4)),
    ):
        with pytest.raises(ValueError, match=r"data|other"):
            changed.verify()


@steady
@given(st.lists(ROWS, min_size=1, max_size=4), st.lists(ROWS, min_size=1, max_size=4))
def test_equal_heads_mean_equal_charges(first: list[LedgerRow], second: list[LedgerRow]) -> None:
    def charges(rows: list[LedgerRow]) -> list[LedgerRow]:
        return [replace(row, count=1) for row in rows for _ in range(row.count)]

    assert (chained(first).head == chained(second).head) == (charges(first) == charges(second))


def test_a_count_that_cannot_be_is_refused_before_the_work() -> None:
    chain = chained([LedgerRow(b"a" * 16, "0x1p-3", "0x1p+0", "gaussian", True, 3, b"")])
    huge = replace(chain, rows=(replace(chain.rows[0], count=1 << 60),))
    with pytest.raises(ValueError, match="more charges than the ledger's 3"):
        huge.verify()


def test_a_million_charges_are_read_in_seconds() -> None:
    chain = chained([LedgerRow(b"a" * 16, (0.1).hex(), (1.5).hex(), "gaussian", True, 10**6, b"")])
    began = time.process_time()
    chain.verify()
    assert time.process_time() - began < 10  # about 1 s where this was written
