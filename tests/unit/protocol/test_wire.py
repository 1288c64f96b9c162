"""The wire format: every message comes back as it was sent, and nothing else comes in."""

from __future__ import annotations

import hashlib
import random
import struct
import tracemalloc
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_128_digest

from tacit.errors import OF_0_1, WireError
from tacit.privacy.accounting import History, Spend
from tacit.privacy.ledger import Charged, Ledger
from tacit.privacy.policy import Terms
from tacit.protocol import wire, wire_down, wire_up
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.envelope import tensor_at
from tacit.protocol.messages import GlobalModel, Halt, Hello, Push, Retired, Update
from tests.helpers.paid import released

SCHEMA = bytes(range(32))
SPENT = (Spend(0.25, 1.5, 3),)
LARGEST = torch.finfo(torch.float32).max
HELLO = Hello("edge-1", 2.0, 1e-5, "gaussian", 0.5, 0.1, 100.0, SPENT)
steady = settings(derandomize=True, deadline=None, max_examples=80)

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
vectors = st.lists(finite, min_size=1, max_size=40).map(
    lambda values: torch.tensor(values, dtype=torch.float32)
)
positive = st.floats(1e-300, 1e300)
histories = st.lists(
    st.builds(Spend, st.floats(1e-9, 1.0), st.floats(0, 1e9), st.integers(0, 2**64 - 1)), max_size=5
).map(tuple)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.numpy().tobytes() == second.numpy().tobytes()


def up(message: Hello | Push | Retired, seq: int = 9) -> bytearray:
    return bytearray(wire_up.up("run-1", seq, message, SCHEMA))


def update_bytes(vector: torch.Tensor, version: int = 7) -> bytearray:
    return up(Push("edge-1", version, released(vector)))


def read(payload: bytes | bytearray, size: int = 3) -> Hello | Update | Retired:
    return wire_up.read_up(wire.decode(payload), SCHEMA, size)


# -- round trips -----------------------------------------------------------------------------------


@steady
@given(vectors, names, st.integers(0, 2**64 - 1))
def test_an_update_arrives_bit_for_bit(vector: torch.Tensor, edge: str, version: int) -> None:
    paid = released(vector, 0.1)
    message = read(up(Push(edge, version, paid)), vector.numel())
    assert isinstance(message, Update)
    assert (message.edge, message.base_version, message.clip, message.spent) == (
        edge,
        version,
        0.1,
        paid.spent,
    )
    assert same_bits(message.vector, vector)


@pytest.mark.parametrize("value", [-0.0, 1e-45, -1e-45, 1.1754942e-38, LARGEST, -LARGEST])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 100_000])
def test_every_finite_float32_survives_at_any_size(value: float, size: int) -> None:
    vector = torch.full((size,), value)
    message = read(update_bytes(vector), size)
    assert isinstance(message, Update)
    assert same_bits(message.vector, vector)


@steady
@given(names, positive, st.floats(1e-300, 0.999), positive, positive, positive, histories)
def test_hello_arrives_as_sent(
    edge: str, epsilon: float, delta: float, noise: float, low: float, high: float, spent: History
) -> None:
    hello = Hello(edge, epsilon, delta, "gaussian", noise, low, high, spent)
    assert read(up(hello)) == hello


@steady
@given(names, st.text(max_size=200).filter(str.isprintable), histories)
def test_retired_arrives_as_sent(edge: str, reason: str, spent: History) -> None:
    assert read(up(Retired(edge, reason, spent))) == Retired(edge, reason, spent)


@steady
@given(vectors, st.integers(0, 2**64 - 1), st.floats(0, 1e300))
def test_a_global_model_arrives_bit_for_bit(
    vector: torch.Tensor, version: int, clip: float
) -> None:
    payload = bytearray(
        wire_down.down("run-1", "edge-1", GlobalModel(version, vector, clip), SCHEMA)
    )
    message = wire_down.read_down(wire.decode(payload), SCHEMA, vector.numel())
    assert isinstance(message, GlobalModel)
    assert (message.version, message.clip) == (version, clip)
    assert same_bits(message.params, vector)


@steady
@given(st.integers(0, 2**64 - 1), st.text(max_size=200).filter(str.isprintable))
def test_halt_arrives_as_sent(version: int, reason: str) -> None:
    payload = wire_down.down("run-1", "*", Halt(version, reason), SCHEMA)
    assert wire_down.read_down(wire.decode(payload), SCHEMA, 3) == Halt(version, reason)


HOSTILE = "\x1b[2Ja\nb\x00\u202ec [/red] é" + "x" * 300
TAMED = "?[2Ja?b??c [/red] é"


def test_a_peers_words_cannot_steer_a_terminal_or_break_a_line_of_log() -> None:
    hello = read(
        up(Hello("edge-1", 1.0, 1e-5, HOSTILE, 1.0, 0.1, 1.0, (), refusals=1, refusal=HOSTILE))
    )
    retired, halt = (
        read(up(Retired("edge-1", HOSTILE, ()))),
        wire_down.down("run-1", "*", Halt(1, HOSTILE), SCHEMA),
    )
    halted = wire_down.read_down(wire.decode(halt), SCHEMA, 3)
    assert isinstance(hello, Hello)
    assert isinstance(retired, Retired)
    assert isinstance(halted, Halt)
    for text in (hello.refusal, retired.reason, halted.reason):
        assert (text, len(text)) == ((TAMED + "x" * 300)[:200], 200)
    assert hello.mechanism == (TAMED + "x" * 300)[:40]


def test_a_models_terms_cannot_either() -> None:
    hostile = GlobalModel(1, torch.ones(3), 1.0, Terms(HOSTILE, 0.5, None))
    model = wire_down.read_down(
        wire.decode(wire_down.down("run-1", "edge-1", hostile, SCHEMA)), SCHEMA, 3
    )
    assert isinstance(model, GlobalModel)
    assert model.terms is not None
    assert model.terms.mechanism == (TAMED + "x" * 300)[:40]


@steady
@given(st.binary(max_size=600), st.integers(1, 64), st.randoms(use_true_random=False))
def test_parts_come_together_in_any_order_with_duplicates(
    body: bytes, room: int, rng: random.Random
) -> None:
    parts = list(wire.split(body, wire.PART_HEADER + room))
    assert all(len(part) <= wire.PART_HEADER + room for part in parts)
    order = parts + rng.choices(parts, k=len(parts))
    rng.shuffle(order)
    assembler = wire.Assembler(len(body))
    last = max(order.index(part) for part in parts)  # the place where the last missing one comes
    for place, part in enumerate(order):
        joined = assembler.add(part)
        assert joined is None if place < last else bytes(joined or b"") == body


@pytest.mark.parametrize(
    "message", [HELLO, Push("edge-1", 7, released(torch.ones(5))), Retired("e", "why", SPENT)]
)
def test_the_tensor_begins_at_a_multiple_of_64_bytes(message: Hello | Push | Retired) -> None:
    for seq in (1, 2**14, 2**50):  # lengths of the meta differ
        payload = up(message, seq)
        tensor = wire.decode(payload).tensor
        body = 0 if tensor is None else 4 * tensor.numel()
        assert (len(payload) - body) % 64 == 0


def test_a_tensor_in_writable_memory_is_not_copied() -> None:
    payload = update_bytes(torch.tensor([1.0, 2.0, 3.0]))
    tensor = wire.decode(payload).tensor
    payload[-4:] = struct.pack("<f", 9.0)
    assert tensor is not None
    assert tensor.tolist() == [1.0, 2.0, 9.0]


def test_a_tensor_in_read_only_memory_does_not_share_it() -> None:
    payload = bytes(update_bytes(torch.tensor([1.0, 2.0, 3.0])))
    tensor = wire.decode(payload).tensor
    assert tensor is not None
    tensor.zero_()
    assert wire.decode(payload).tensor is not None


# -- the one door ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        torch.ones(3),
        None,
        b"raw",
        Halt(1, "x"),
        GlobalModel(1, torch.ones(3), 1.0),
        Update("edge-1", 1, torch.ones(3), 1.0, ()),
        Push("edge-1", 1, torch.ones(3)),  # type: ignore[arg-type]
        Push("edge-1", 1, None),  # type: ignore[arg-type]
    ],
)
def test_nothing_but_a_released_vector_leaves_an_edge(message: Any) -> None:
    with pytest.raises(TypeError, match="leave an edge"):
        wire_up.up("run-1", 1, message, SCHEMA)


# -- golden bytes: a change of the format must be noticed ------------------------------------------

_META = "0a0572756e2d311206656467652d31"
_SCHEMA = "3a20" + SCHEMA.hex()
_SPENT = "09000000000000d03f11000000000000f83f1803"
_READS = "6002"  # the format of the envelope
OF_0_2 = {  # where it did not know its receiver
    "hello": f"5443543185000000{_META}1809{_SCHEMA}{_READS}82014d09000000000000004011f168e388b5f8e43e1a08676175737369616e"
    f"21000000000000e03f299a9999999999b93f3100000000000059403a14{_SPENT}" + 51 * "00",
    "update": f"544354319f000000{_META}18092203663332280332202ce4bdb6b34a50ac7092eb9fee94337a27498e9eb9bae44192f15b88"
    f"831b2422{_SCHEMA}{_READS}8a013e080711000000000000f83f1a0b09000000000000d03f1801222408011220"
    + bytes(range(32)).hex()
    + 25 * "00"
    + "0000803f000000c00000003f",
    "retired": f"5443543155000000{_META}1809{_SCHEMA}{_READS}92011d0a057370656e741214{_SPENT}"
    + 35 * "00",
    "model": f"544354316a000000{_META}220366333228033220b3d522d72e4db7ea1fb6fdc6d776ba0be64bd4a293677e8d4afe0da7ab9d"
    f"d42f{_SCHEMA}{_READS}9a010b0808110000000000000440" + 14 * "00" + "000000000000008001000000",
    "halt": f"544354313e000000{_META}{_SCHEMA}{_READS}a2010808081204646f6e65" + 58 * "00",
    "receipt": f"5443543129000000{_META}1809{_READS}aa01130805120466756c6c19000000000000f83f2008"
    + 15 * "00",
    "announcement": f"54435431710000000a0572756e2d3112012a220366333228013220e00e5eb9444182f352323374ef4e08ebcb784725fd"
    f"d4fd612d7730540b3e0c8c{_SCHEMA}{_READS}b2011708031208747261696e696e67180822026162280c320175"
    + 7 * "00"
    + "0000803f",
}
GOLDEN = OF_0_2 | {
    "update": "544354318f0000000a0572756e2d311206656467652d311809220366333228033a2000010203040506070809"
    "0a0b0c0d0e0f101112131415161718191a1b1c1d1e1f5a10b2f2c4223e698d91ddad45d4204f5ad660028a01"
    "3e080711000000000000f83f1a0b09000000000000d03f1801222408011220000102030405060708090a0b0c"
    "0d0e0f101112131415161718191a1b1c1d1e1f00000000000000000000000000000000000000000000000000"
    "000000000000000000000000000000000000803f000000c00000003f",
    "model": "544354315a0000000a0572756e2d311206656467652d31220366333228033a20000102030405060708090a0b"
    "0c0d0e0f101112131415161718191a1b1c1d1e1f5a10920b0f39a804043846c28207139d73dd60029a010b08"
    "0811000000000000044000000000000000000000000000000000000000000000000000000000000000000000"
    "0000008001000000",
    "announcement": "54435431610000000a0572756e2d3112012a220366333228013a20000102030405060708090a0b0c0d0e0f10"
    "1112131415161718191a1b1c1d1e1f5a10e6f9acca6893caeb591ef4e963e120d46002b20117080312087472"
    "61696e696e67180822026162280c32017500000000000000000000000000000000000000000000000000803f",
}


def test_up_messages_are_the_golden_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    head = bytes(range(32))  # of a real ledger's chain, it is never the same
    monkeypatch.setattr(Ledger, "charged", lambda ledger: Charged(1, head))
    assert up(HELLO).hex() == GOLDEN["hello"]
    assert update_bytes(torch.tensor([1.0, -2.0, 0.5])).hex() == GOLDEN["update"]
    assert up(Retired("edge-1", "spent", SPENT)).hex() == GOLDEN["retired"]


def test_down_messages_are_the_golden_bytes() -> None:
    model = GlobalModel(8, torch.tensor([0.0, -0.0, 1e-45]), 2.5)
    assert wire_down.down("run-1", "edge-1", model, SCHEMA).hex() == GOLDEN["model"]
    assert wire_down.down("run-1", "edge-1", Halt(8, "done"), SCHEMA).hex() == GOLDEN["halt"]


def test_control_messages_are_the_golden_bytes() -> None:
    receipt = pb.Receipt(status=pb.Receipt.BUSY, reason="full", retry_after_s=1.5, last_seq=8)
    assert (
        wire.encode(pb.Meta(run="run-1", edge="edge-1", seq=9, receipt=receipt)).hex()
        == GOLDEN["receipt"]
    )
    announcement = pb.Announcement(
        epoch=3, state="training", version=8, model_sha256="ab", model_bytes=12, url="u"
    )
    meta = pb.Meta(run="run-1", edge="*", schema_hash=SCHEMA, announcement=announcement)
    assert wire.encode(meta, torch.tensor([1.0])).hex() == GOLDEN["announcement"]


@pytest.mark.parametrize("kind", OF_0_2)
def test_a_message_of_tacit_0_2_says_what_it_said(kind: str) -> None:
    older, now = (wire.decode(bytes.fromhex(texts[kind])) for texts in (OF_0_2, GOLDEN))
    assert not older.meta.xxh3
    older.meta.ClearField("sha256")
    now.meta.ClearField("xxh3")
    assert older.meta == now.meta
    assert (older.tensor is None) == (now.tensor is None)
    if older.tensor is not None and now.tensor is not None:
        assert same_bits(older.tensor, now.tensor)


@pytest.mark.parametrize("kind", OF_0_2)
def test_a_message_of_tacit_0_1_is_refused(kind: str) -> None:
    with pytest.raises(WireError) as refusal:
        wire.decode(of_0_1(bytes.fromhex(OF_0_2[kind])))
    reason = f"format: the message has no format, this tacit reads 2: {OF_0_1}"
    assert str(refusal.value) == reason


def test_a_tensor_has_one_checksum() -> None:
    meta = wire.decode(bytes.fromhex(OF_0_2["model"])).meta
    assert (len(meta.sha256), len(meta.xxh3)) == (32, 0)
    meta = wire.decode(wire.encode(meta, torch.ones(3))).meta
    assert (len(meta.sha256), len(meta.xxh3)) == (0, 16)


def test_parts_are_the_golden_bytes() -> None:
    head = "54435450{}000000030000000700000000000000{}00000000000000{}"
    golden = [
        head.format("00", "00", "616263"),
        head.format("01", "03", "646566"),
        head.format("02", "06", "67"),
    ]
    assert [part.hex() for part in wire.split(b"abcdefg", wire.PART_HEADER + 3)] == golden


# -- refusals, each with its reason ----------------------------------------------------------------


def envelope(body: bytes = struct.pack("<3f", 1, 2, 3), **fields: Any) -> bytes:
    """Return an update envelope with correct dtype, numel and sha256 unless `fields` has others."""
    right = {
        "dtype": "f32",
        "numel": len(body) // 4,
        "reads": 2,
        "sha256": hashlib.sha256(body).digest(),
        "schema_hash": SCHEMA,
    }
    meta = pb.Meta(
        **{
            "run": "run-1",
            "edge": "edge-1",
            "seq": 1,
            "update": pb.Update(clip=1.0),
            **right,
            **fields,
        }
    )
    return raw(meta.SerializeToString(), body)


def raw(head: bytes, body: bytes = b"") -> bytes:
    return b"TCT1" + struct.pack("<I", len(head)) + head + bytes(-(8 + len(head)) % 64) + body


def of_0_1(payload: bytes | bytearray) -> bytes:
    """Return the same message as tacit 0.1 wrote it: nothing states a format."""
    meta, body = wire.decode(of_0_2(payload)).meta, bytes(payload[tensor_at(payload) :])
    meta.ClearField("reads")
    return raw(meta.SerializeToString(), body)


def of_0_2(payload: bytes | bytearray) -> bytes:
    """Return the same message as tacit 0.2 wrote it where it did not know its receiver."""
    meta, body = wire.decode(payload).meta, bytes(payload[tensor_at(payload) :])
    meta.xxh3, meta.sha256 = b"", hashlib.sha256(body).digest()
    return raw(meta.SerializeToString(), body)


def hello(**fields: Any) -> pb.Hello:
    right = {"epsilon": 2.0, "delta": 1e-5, "clip_min": 0.1, "clip_max": 1.0}
    return pb.Hello(**{**right, **fields})


def spent(q: float, z: float) -> list[pb.Spend]:
    return [pb.Spend(sampling_rate=q, noise_multiplier=z, count=1)]


NAN, INF = float("nan"), float("inf")
REFUSED = [
    ("magic", b""),
    ("magic", b"TCT1"),
    ("magic", b"TCT2" + envelope()[4:]),
    ("length", b"TCT1" + struct.pack("<I", 2**32 - 1) + bytes(200)),
    ("length", b"TCT1" + struct.pack("<I", 300) + bytes(200)),
    ("length", raw(bytes(wire.MAX_META + 1))),
    ("meta", raw(b"\xff\xff\xff")),
    ("meta", raw(b"\x0a\x02\xff\xff")),  # a string that is not UTF-8
    ("meta", raw(pb.Meta(run="run-1").SerializeToString())),  # no kind
    ("dtype", envelope(dtype="f64")),
    ("dtype", envelope(dtype="i8")),
    ("dtype", envelope(dtype="i16", numel=6, update=None, model=pb.GlobalModel())),
    ("apart", envelope(apart=1)),
    ("apart", envelope(dtype="i32", apart=1)),
    ("dtype", envelope(dtype="")),
    ("numel", envelope(numel=4)),
    ("numel", envelope(numel=2**62 + 3)),  # times 4 is 12 in 64 bits
    ("numel", envelope(b"", numel=0)),
    ("sha256", envelope(sha256=bytes(32))),
    ("sha256", envelope(sha256=b"")),
    ("sha256", envelope(sha256=b"", xxh3=b"")),
    ("xxh3", envelope(xxh3=bytes(16))),
    ("xxh3", envelope(sha256=b"", xxh3=bytes(16))),
    ("xxh3", envelope(sha256=b"", xxh3=xxh3_128_digest(struct.pack("<3f", 1, 2, 3))[:8])),
    ("finite", envelope(struct.pack("<3f", 1, NAN, 3))),
    ("finite", envelope(struct.pack("<3f", 1, 2, INF))),
    ("schema", envelope(schema_hash=b"another")),
    ("shape", envelope(struct.pack("<2f", 1, 2))),
    (
        "shape",
        raw(pb.Meta(reads=2, schema_hash=SCHEMA, update=pb.Update(clip=1.0)).SerializeToString()),
    ),
    ("shape", envelope(hello=hello())),  # hello carries no tensor
    ("kind", raw(pb.Meta(reads=2, schema_hash=SCHEMA, halt=pb.Halt()).SerializeToString())),
    *[("value", envelope(update=pb.Update(clip=clip))) for clip in (NAN, INF, -1.0)],
    *[
        ("value", envelope(update=pb.Update(clip=1.0, spent=spent(q, 1.0))))
        for q in (0.0, -0.1, 1.1, NAN)
    ],
    *[
        ("value", envelope(update=pb.Update(clip=1.0, spent=spent(0.1, z))))
        for z in (-1.0, NAN, INF)
    ],
    ("value", envelope(update=pb.Update(clip=1.0, spent=1001 * spent(0.1, 1.0)))),
]


@pytest.mark.parametrize(("reason", "payload"), REFUSED)
def test_a_bad_update_is_refused_with_its_reason(reason: str, payload: bytes) -> None:
    with pytest.raises(WireError) as refusal:
        read(payload)
    assert refusal.value.reason == reason
    assert "\n" not in str(refusal.value)


def test_the_good_one_that_they_are_made_from_is_accepted() -> None:
    assert isinstance(read(envelope()), Update)


@pytest.mark.parametrize("field", ["epsilon", "delta", "noise_variance", "clip_min", "clip_max"])
@pytest.mark.parametrize("value", [NAN, -1.0])
def test_a_hello_with_an_impossible_number_is_refused(field: str, value: float) -> None:
    meta = pb.Meta(reads=2, edge="edge-1", schema_hash=SCHEMA, hello=hello(**{field: value}))
    with pytest.raises(WireError) as refusal:
        read(raw(meta.SerializeToString()))
    assert refusal.value.reason == "value"


@pytest.mark.parametrize(
    ("field", "value"), [("epsilon", 0.0), ("delta", 0.0), ("delta", 1.0), ("clip_max", INF)]
)
def test_a_hello_outside_its_ranges_is_refused(field: str, value: float) -> None:
    meta = pb.Meta(reads=2, edge="edge-1", schema_hash=SCHEMA, hello=hello(**{field: value}))
    with pytest.raises(WireError, match=field):
        read(raw(meta.SerializeToString()))


@pytest.mark.parametrize(
    ("reason", "fields", "size"),
    [
        ("kind", {"hello": pb.Hello()}, 3),
        ("schema", {"model": pb.GlobalModel(clip=1.0), "schema_hash": b""}, 3),
        ("shape", {"model": pb.GlobalModel(clip=1.0)}, 4),
    ],
)
def test_a_bad_model_is_refused_with_its_reason(
    reason: str, fields: dict[str, Any], size: int
) -> None:
    with pytest.raises(WireError) as refusal:
        wire_down.read_down(wire.decode(envelope(**fields)), SCHEMA, size)
    assert refusal.value.reason == reason


@pytest.mark.parametrize("clip", [NAN, INF, -1.0, 0.0])
def test_the_clip_of_a_model_comes_as_it_was_said_for_the_policy_to_judge(clip: float) -> None:
    message = wire_down.read_down(wire.decode(envelope(model=pb.GlobalModel(clip=clip))), SCHEMA, 3)
    assert isinstance(message, GlobalModel)
    assert message.clip == pytest.approx(clip, nan_ok=True)


def part(
    number: int = 0, parts: int = 2, total: int = 10, offset: int = 0, body: bytes = b"12345"
) -> bytes:
    return b"TCTP" + struct.pack("<IIQQ", number, parts, total, offset) + body


@pytest.mark.parametrize(
    ("reason", "payload"),
    [
        ("magic", b""),
        ("magic", b"TCTP"),
        ("magic", b"XXXX" + part()[4:]),
        ("size", part(total=101)),
        ("size", part(total=2**64 - 1)),
        ("length", part(parts=0)),
        ("length", part(number=2)),
        ("length", part(parts=12)),
        ("length", part(offset=6)),
        ("length", part(offset=2**64 - 1)),
        ("length", part(parts=2**32 - 1)),
    ],
)
def test_a_bad_part_is_refused_with_its_reason(reason: str, payload: bytes) -> None:
    with pytest.raises(WireError) as refusal:
        wire.Assembler(100).add(payload)
    assert refusal.value.reason == reason


def test_parts_that_disagree_on_the_size_are_refused() -> None:
    assembler = wire.Assembler(100)
    assembler.add(part())
    with pytest.raises(WireError, match="disagree"):
        assembler.add(part(1, total=11, offset=5))


@pytest.mark.parametrize("offset", [4, 6])
def test_parts_that_leave_a_gap_or_overlap_are_refused(offset: int) -> None:
    assembler = wire.Assembler(100)
    assembler.add(part(1, offset=offset, body=b"6789"))
    with pytest.raises(WireError) as refusal:
        assembler.add(part())
    assert refusal.value.reason == "length"


def test_a_part_after_the_last_changes_nothing() -> None:
    assembler = wire.Assembler(100)
    assembler.add(part())
    joined = assembler.add(part(1, offset=5, body=b"67890"))
    assembler.add(part(1, offset=5, body=b"xxxxx"))
    assert bytes(joined or b"") == b"1234567890"


@pytest.mark.parametrize("parts", [2, 4_000_000])
def test_an_announced_size_costs_no_memory(parts: int) -> None:
    tracemalloc.start()
    try:
        wire.Assembler(4_000_000).add(part(parts=parts, total=4_000_000))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_refused_announcement_allocates_nothing() -> None:
    tracemalloc.start()
    try:
        for total in (2**40, 2**64 - 1):
            with pytest.raises(WireError):
                wire.Assembler(1 << 20).add(part(total=total))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


# -- damage ----------------------------------------------------------------------------------------

KINDS = {kind: bytes.fromhex(text) for kind, text in OF_0_2.items()}
KINDS["update with xxh3"], KINDS["model with xxh3"] = (
    bytes.fromhex(GOLDEN[kind]) for kind in ("update", "model")
)
KINDS["update of int16"], KINDS["update of int16 and others"] = (
    wire.encode(wire.decode(KINDS["update"]).meta, integers)
    for integers in (
        torch.tensor([1, -2, 1 << 14], dtype=torch.int32),
        torch.tensor([1, -2, 3, 4, 1 << 20], dtype=torch.int32),
    )
)


def understood(payload: bytes) -> torch.Tensor | None:
    """Return the tensor that anything in the system would make of `payload`, None when all refuse.

    Only WireError may be raised.
    """
    try:
        received = wire.decode(payload)
    except WireError:
        return None
    for reader in (wire_up.read_up, wire_down.read_down):
        try:
            reader(received, SCHEMA, 3)
        except WireError as refusal:
            assert refusal.reason  # noqa: PT017
    return received.tensor


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_cut_at_any_byte_gives_no_other_tensor(kind: str) -> None:
    message = KINDS[kind]
    for length in range(len(message)):
        tensor = understood(message[:length])
        assert tensor is None


@pytest.mark.parametrize(
    "kind",
    [
        "update",
        "model",
        "announcement",
        "update with xxh3",
        "model with xxh3",
        "update of int16",
        "update of int16 and others",
    ],
)
def test_a_flipped_bit_gives_no_other_tensor(kind: str) -> None:
    message = KINDS[kind]
    right = wire.decode(message).tensor
    assert right is not None
    for place in range(8 * len(message)):
        damaged = bytearray(message)
        damaged[place // 8] ^= 1 << place % 8
        tensor = understood(bytes(damaged))
        assert tensor is None or same_bits(tensor, right)


@steady
@given(
    st.sampled_from(sorted(KINDS)),
    st.lists(st.tuples(st.integers(0, 255), st.integers(0, 255)), max_size=8),
)
def test_overwritten_bytes_raise_nothing_but_wire_error(
    kind: str, changes: list[tuple[int, int]]
) -> None:
    damaged = bytearray(KINDS[kind])
    for place, value in changes:
        damaged[place % len(damaged)] = value
    understood(bytes(damaged))


@steady
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"TCT1", b"TCT1\x08\x00\x00\x00", b"TCT1\x40\x00\x00\x00"]),
)
def test_random_bytes_raise_nothing_but_wire_error(noise: bytes, head: bytes) -> None:
    understood(head + noise)


@steady
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.builds(
                part,
                st.integers(0, 4),
                st.integers(0, 5),
                st.integers(0, 70),
                st.integers(0, 70),
                st.binary(max_size=20),
            ),
        ),
        max_size=12,
    )
)
def test_random_parts_raise_nothing_but_wire_error(payloads: list[bytes]) -> None:
    assembler = wire.Assembler(64)
    for payload in payloads:
        try:
            joined = assembler.add(payload)
        except WireError:
            continue
        assert joined is None or len(joined) <= 64


@pytest.mark.parametrize("scale", [0.0, 5e-324, 1e-300, 3e-7, 0.1, 1.0, 7.3e5, 1e29, 1.5e29])
def test_an_integer_update_is_the_same_bits_as_one_multiplication_in_float64(scale: float) -> None:
    integers = torch.randint(
        -(2**31), 2**31, (20_000,), generator=torch.Generator().manual_seed(1)
    ).to(torch.int32)
    integers[:3] = torch.tensor([-(2**31), 2**31 - 1, 0], dtype=torch.int32)
    expected = (integers.to(torch.float64) * scale).to(torch.float32)
    assert torch.equal(
        wire_up.gradient(integers, scale).view(torch.int32), expected.view(torch.int32)
    )
    # In the integers' own memory as well, however many blocks they are.
    many = integers.repeat(7)
    scaled = wire_up.gradient_in_place(many, scale)
    assert scaled.data_ptr() == many.data_ptr()
    assert torch.equal(many, expected.repeat(7).view(torch.int32))


def test_a_long_envelope_has_memory_of_its_own_and_is_decoded_like_any() -> None:
    model = GlobalModel(3, torch.rand(700_000, generator=torch.Generator().manual_seed(1)), 1.0)
    encoded, assembler = wire_down.down("r", "e", model, SCHEMA), wire.Assembler(1 << 22)
    *first, last = wire.split(encoded, 100_000)
    for part in (*first[20:], *first[:20]):
        assert assembler.add(part) is None
    assert assembler.held == sum(len(part) - wire.PART_HEADER for part in first)
    envelope = assembler.add(last)
    assert envelope is not None
    assert bytes(envelope) == encoded
    assert not isinstance(envelope, bytearray)
    received = wire_down.read_down(wire.decode(envelope), SCHEMA, 700_000)
    assert isinstance(received, GlobalModel)
    assert torch.equal(received.params, model.params)


@pytest.mark.parametrize("scale", [1.6e29, 1e300, float("inf"), float("nan"), -1.0])
def test_a_scale_that_no_float32_can_hold_is_refused(scale: float) -> None:
    with pytest.raises(WireError, match="scale"):
        wire_up.gradient(torch.tensor([2**31 - 1, 5], dtype=torch.int32), scale)


def test_an_envelope_in_place_has_the_bytes_of_the_whole_one() -> None:
    model = GlobalModel(3, torch.arange(500, dtype=torch.float32), 1.0)
    joined, in_place = (
        wire_down.down("r", "e", model, SCHEMA),
        wire_down.down_in_place("r", "e", model, SCHEMA),
    )
    assert (len(in_place), in_place.whole()) == (len(joined), joined)
    for chunk in (40, 100, 1000, 10_000):
        parts = range(wire.count_parts(len(joined), chunk))
        parts_in_place = [wire.part(in_place, chunk, number) for number in parts]
        assert parts_in_place == list(wire.split(joined, chunk))


@pytest.mark.parametrize("chunk", [36, 37, 100, 10_000])
@pytest.mark.parametrize("digest", ["sha256", "xxh3"])
def test_the_digest_of_a_message_in_parts_is_that_of_its_tensor(chunk: int, digest: str) -> None:
    # Given parts that begin anywhere in the head, and come in any order,
    model = GlobalModel(3, torch.arange(500, dtype=torch.float32), 1.0)
    payload = bytearray(wire_down.down("r", "e", model, SCHEMA))
    if digest == "sha256":
        payload = bytearray(of_0_2(payload))
    for changed in (False, True):
        payload[-1] ^= changed
        assembler = wire.Assembler(len(payload))
        parts = list(wire.split(bytes(payload), chunk))
        joined = [assembler.add(each) for each in reversed(parts)][-1]
        assert joined is not None
        # then decoding says what it says of the whole one.
        with pytest.raises(WireError, match="the tensor bytes") if changed else nullcontext():
            assert wire.decode(joined).meta.model.version == 3
