"""Integers that travel as int16: the same numbers, in half the bytes, and nothing else is read."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_128_digest

from tacit.errors import WireError
from tacit.privacy.noise.grid import noise_units
from tacit.privacy.noise.mechanisms import discrete_gaussian
from tacit.privacy.noise.randomness import Random
from tacit.protocol import int16, wire, wire_up
from tacit.protocol._pb import wire_pb2 as pb
from tests.unit.protocol import test_wire

LEAST, LARGEST = -(1 << 15), (1 << 15) - 1
FIT = [LEAST, -1, 0, 1, LARGEST]
MANY = [3] * 20  # beside which a number that does not fit may go apart


def sent(integers: list[int]) -> tuple[wire.Received, int]:
    """Return what a receiver decodes of them, and the bytes of the message."""
    vector = torch.tensor(integers, dtype=torch.int32)
    payload = wire.encode(pb.Meta(update=pb.Update()), vector)
    return wire.decode(payload), len(payload)


@pytest.mark.parametrize(
    ("integers", "dtype", "apart"),
    [
        (FIT, "i16", 0),
        ([*MANY, LARGEST + 1], "i16", 1),
        ([LEAST - 1, *MANY], "i16", 1),
        ([1 << 16, *MANY, -(1 << 16)], "i16", 2),  # their low 16 bits are 0
        ([*MANY, (1 << 31) - 1, *FIT, -(1 << 31)], "i16", 2),
        ([1 << 20, 0, 0, 0, 0], "i16", 1),
        ([1 << 20, 0, 0, 0], "i32", 0),  # no shorter
        ([(1 << 31) - 1, -(1 << 31)], "i32", 0),
    ],
)
def test_integers_arrive_as_they_are_in_the_shortest_form(
    integers: list[int], dtype: str, apart: int
) -> None:
    received, size = sent(integers)
    assert (received.meta.dtype, received.meta.apart) == (dtype, apart)
    body = 2 * len(integers) + 8 * apart if dtype == "i16" else 4 * len(integers)
    assert size % 64 == body % 64
    assert received.tensor is not None
    assert received.tensor.dtype == torch.int32
    assert received.tensor.tolist() == integers


@settings(deadline=None)
@given(
    st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=60), st.integers(0, 31)
)
def test_any_integers_arrive_as_they_are(integers: list[int], shift: int) -> None:
    integers = [number >> shift for number in integers]
    received, _ = sent(integers)
    assert received.tensor is not None
    assert received.tensor.tolist() == integers


@pytest.mark.parametrize(
    ("multiplier", "apart"), [(0.5, 0.0), (1.0, 0.0), (2.0, 1e-3), (4.0, 0.05), (50.0, 0.05)]
)
def test_noise_takes_half_the_bytes_or_little_more_at_every_multiplier(
    multiplier: float, apart: float
) -> None:
    count = 100_000
    noise = discrete_gaussian(torch.zeros(count, dtype=torch.int64), multiplier, Random(1))
    integers = noise.to(torch.int32)
    packed = int16.packed(integers)
    assert packed is not None, noise_units(multiplier)
    body, large = packed
    assert large <= apart * count
    assert len(body) == int16.size(count, large) <= 2.4 * count
    assert torch.equal(int16.unpacked(body, count, large), integers)


@pytest.mark.parametrize("integers", [FIT, [*MANY, 1 << 20, -(1 << 20)]])
@pytest.mark.parametrize("scale", [2.0**-12, 1 / 3, 1e-30])
def test_they_are_worth_the_same_to_the_bit(integers: list[int], scale: float) -> None:
    right = wire_up.gradient(torch.tensor(integers, dtype=torch.int32), scale)
    received, _ = sent(integers)
    assert received.tensor is not None
    assert torch.equal(wire_up.gradient(received.tensor, scale), right)
    assert torch.equal(wire_up.gradient_in_place(received.tensor, scale), right)


def test_of_no_numbers_none_are_shorter() -> None:
    assert int16.packed(torch.zeros(0, dtype=torch.int32)) is None


def test_real_numbers_stay_float32() -> None:
    payload = wire.encode(pb.Meta(update=pb.Update()), torch.ones(3))
    assert wire.decode(payload).meta.dtype == "f32"


def bytes_of(small: list[int], places: list[int], values: list[int]) -> memoryview:
    apart = len(places)
    return memoryview(struct.pack(f"<{len(small)}h{apart}I{apart}i", *small, *places, *values))


@pytest.mark.parametrize(
    ("small", "places", "values"),
    [
        ([1, 0, 0, 1], [2, 1], [1 << 20, 1 << 20]),  # not rising
        ([1, 0, 0, 1], [1, 1], [1 << 20, 1 << 20]),  # twice
        ([1, 0, 0, 1], [1, 4], [1 << 20, 1 << 20]),  # beyond the end
        ([1, 0, 0, 1], [1, (1 << 32) - 1], [1 << 20, 1 << 20]),
        ([1, 0, 5, 1], [1, 2], [1 << 20, 1 << 20]),  # there is a number at its place
        ([1, 0, 0, 1], [1, 2], [1 << 20, LARGEST]),  # would fit
        ([1, 0, 0, 1], [1, 2], [LEAST, 1 << 20]),
    ],
)
def test_another_way_to_write_them_is_refused(
    small: list[int], places: list[int], values: list[int]
) -> None:
    right = bytes_of([1, 0, 0, 1], [1, 2], [LARGEST + 1, LEAST - 1])
    assert int16.unpacked(right, 4, 2).tolist() == [1, LARGEST + 1, LEAST - 1, 1]
    with pytest.raises(WireError) as refusal:
        int16.unpacked(bytes_of(small, places, values), 4, len(places))
    assert refusal.value.reason == "apart"


def raw(body: bytes, **fields: Any) -> bytes:
    """Return an update envelope with these fields."""
    meta_fields: dict[str, Any] = {
        "dtype": "i16",
        "reads": 2,
        "xxh3": xxh3_128_digest(body),
    } | fields
    return test_wire.raw(pb.Meta(update=pb.Update(), **meta_fields).SerializeToString(), body)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (bytes_of([0, 0, 0, 0], [0], [1 << 20]), {"numel": 4, "apart": 1}),  # as int32 no longer
        (bytes_of([0], [0], [1 << 20]), {"numel": 1, "apart": 1}),
        (struct.pack("<3i", 1, 2, 3), {"numel": 3, "apart": 1, "dtype": "i32"}),
        (struct.pack("<3f", 1, 2, 3), {"numel": 3, "apart": 1, "dtype": "f32"}),
        (b"", {"apart": 1, "dtype": "", "xxh3": b""}),
    ],
)
def test_what_lies_apart_where_nothing_should_is_refused(
    body: bytes, fields: dict[str, Any]
) -> None:
    with pytest.raises(WireError) as refusal:
        wire.decode(raw(bytes(body), **fields))
    assert refusal.value.reason == "apart"


def test_more_numbers_than_are_of_use_are_not_made_wider() -> None:
    payload = raw(bytes(20), numel=10)
    assert wire.decode(payload, most=10).meta.numel == 10
    with pytest.raises(WireError) as refusal:
        wire.decode(payload, most=9)
    assert refusal.value.reason == "shape"


def test_the_form_is_the_golden_bytes() -> None:
    vector = torch.tensor([1, -2, 1 << 20, 3, 4, -(1 << 15) - 1, *range(5, 20)], dtype=torch.int32)
    meta = pb.Meta(run="run-1", edge="edge-1", update=pb.Update(clip=1.0, scale=0.5))
    assert wire.encode(meta, vector).hex() == (
        "54435431410000000a0572756e2d311206656467652d31220369313628155a105e014c4b67e5ba4778a9"
        "165801a4ad57600268028a011211000000000000f03f29000000000000e03f0000000000000000000000"
        "000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
        "00000100feff0000030004000000050006000700080009000a000b000c000d000e000f00100011001200"
        "1300020000000500000000001000ff7fffff"
    )


@pytest.mark.parametrize("apart", [1, 2, 1 << 32, (1 << 64) - 1])
@pytest.mark.parametrize("numel", [30, 1 << 40, (1 << 64) - 1])
def test_a_size_that_is_not_there_is_refused_before_memory_is_taken(apart: int, numel: int) -> None:
    with pytest.raises(WireError) as refusal:
        wire.decode(raw(bytes(8), numel=numel, apart=apart))
    assert refusal.value.reason in ("numel", "apart")
