"""An offer has one form, one fingerprint, and its researcher's signature."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tacit_services.offers.offer import MOST_BYTES, MOST_DEPTH, Offer

from tacit.digests import canonical
from tacit.errors import ConfigError, TacitError, WireError
from tests.helpers.offered import changed, key

FILE: dict[str, Any] = {
    "run": {"name": "doses", "updates": 60},
    "data": {"kind": "table", "rows": 400, "columns": {"dose": {"low": 0.0, "high": 1.5}}},
    "model": {"name": "graph", "file": "net.graph.json"},
}
FILES = {"net.graph.json": "a" * 64, "nets/net.safetensors": "b" * 64}


def offer(**values: Any) -> Offer:
    """Return a signed offer, in which values may differ."""
    content: dict[str, Any] = {
        "run": "doses-1",
        "file": FILE,
        "files": FILES,
        "researcher": key().public(),
    }
    return key().signed(Offer(**(content | values)))


CONTENT = offer().content()


def test_what_is_written_is_read_again_with_the_same_fingerprint() -> None:
    again = Offer.parse(CONTENT)
    assert again == offer()
    assert again.fingerprint == offer().fingerprint
    assert again.content() == CONTENT


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(CONTENT) - 1), st.integers(1, 255))
def test_no_other_byte_anywhere_is_an_offer(place: int, by: int) -> None:
    other = bytearray(CONTENT)
    other[place] ^= by
    with pytest.raises(WireError):
        Offer.parse(bytes(other))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(CONTENT)), st.binary(min_size=1, max_size=4))
def test_no_byte_more_or_fewer_is_an_offer(place: int, more: bytes) -> None:
    for content in (CONTENT[:place] + more + CONTENT[place:], CONTENT[:place]):
        if content != CONTENT:
            with pytest.raises(WireError):
                Offer.parse(content)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inside: (
        st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=10), inside, max_size=4)
    ),
    max_leaves=20,
)
_KEYS = st.sampled_from(
    ["format", "run", "file", "files", "code", "researcher", "signature", "more"]
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(_KEYS, _JSON, max_size=8))
def test_whatever_json_comes_is_refused_as_such(values: dict[str, Any]) -> None:
    content = json.loads(CONTENT) | values
    data = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    try:
        parsed = Offer.parse(data.encode(errors="surrogatepass"))
    except WireError:
        return
    assert parsed.content() == CONTENT


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_noise_is_no_offer(content: bytes) -> None:
    with pytest.raises(WireError):
        Offer.parse(content)


def test_an_offer_that_another_key_has_signed_is_refused() -> None:
    content = json.loads(CONTENT)
    content["signature"] = json.loads(
        key(seed=2)
        .signed(Offer(run="doses-1", file=FILE, files=FILES, researcher=key(seed=2).public()))
        .content()
    )["signature"]
    with pytest.raises(WireError, match="signature"):
        Offer.parse(canonical(content).encode())


def test_nobody_signs_in_the_name_of_another_key() -> None:
    unsigned = Offer(run="doses-1", file=FILE, files=FILES, researcher=key().public())
    with pytest.raises(ConfigError, match="another key"):
        key(seed=2).signed(unsigned)


def test_a_signature_of_the_fingerprint_alone_is_none_of_an_offer() -> None:
    unsigned = Offer(run="doses-1", file=FILE, files=FILES, researcher=key().public())
    raw = canonical(unsigned.model_dump(exclude={"signature"})).encode()

    signed = unsigned.model_copy(
        update={"signature": base64.b64encode(key().key.sign(raw)).decode()}
    )
    with pytest.raises(WireError, match="signature"):
        Offer.parse(signed.content())


@pytest.mark.parametrize(
    "name",
    [
        "../net.safetensors", "/etc/net.json", "a/../net.json", "nets//net.json", ".net.json",
        "net.py", "net.json.py", "net.pyc", "net", "nets/", "n\u202eet.json", "a b.json", "",
        "a/b/c/d/e/f.json", "CON\x00.json", "offer.json", "net.json\n",
    ],
)  # fmt: skip
def test_a_file_has_a_plain_relative_name_of_data(name: str) -> None:
    with pytest.raises(WireError):
        Offer.parse(canonical(json.loads(CONTENT) | {"files": {name: "a" * 64}}).encode())


def _deep(depth: int) -> dict[str, Any]:
    inside: dict[str, Any] = {}
    for _ in range(depth):
        inside = {"a": inside}
    return {"run": inside}


@pytest.mark.parametrize(
    "make",
    [
        lambda: b'{"a":' * 100_000,
        lambda: canonical(json.loads(CONTENT) | {"file": _deep(MOST_DEPTH)}).encode(),
        lambda: b'{"a":1,"a":1}',
        lambda: CONTENT.replace(b"1.5", b"NaN"),
        lambda: CONTENT.replace(b"1.5", b"1e999"),
        lambda: CONTENT.replace(b"1.5", b"9" * 500),
        lambda: CONTENT.replace(b"1.5", b"1.50"),
        lambda: CONTENT + b" ",
        lambda: b"\xef\xbb\xbf" + CONTENT,
        lambda: CONTENT.replace(b"doses", b"\\ud800"),
        lambda: CONTENT.replace(b'"name":"doses"', b'"name":"\\ud800"'),
        lambda: b"[" + b"0," * (MOST_BYTES // 2) + b"0]",
    ],
)  # fmt: skip
def test_what_is_no_canonical_json_is_refused(make: Callable[[], bytes]) -> None:
    with pytest.raises(WireError) as refused:
        Offer.parse(make())
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("name", ["", " Ada", "Ada\x1b[2J", "Ada\u202e", "Ada\nB", "a" * 101])
def test_a_researchers_name_is_seen_whole(name: str) -> None:
    with pytest.raises(TacitError):
        key(name).public()


def test_a_change_anywhere_is_another_fingerprint() -> None:
    other_file = FILE | {"run": {"name": "doses", "updates": 61}}
    prints = {
        each.fingerprint
        for each in (
            offer(), offer(run="doses-2"), offer(files={"net.graph.json": "c" * 64}),
            offer(file=other_file), offer(code={"rows:Rows": "d" * 64}),
            changed(offer(), researcher={"name": "Dr. Eve", "key": key().public().key}),
        )
    }  # fmt: skip
    assert len(prints) == 6
