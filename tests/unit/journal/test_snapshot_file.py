"""A snapshot's bytes: all come back to the last bit, and damage is an error, no other model."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
import safetensors.torch
import torch
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from tacit_services.journal import snapshot_file

from tacit.errors import ServiceError

VALUES = {"role": {"version": 3, "halted": "", "recent": [0, 1]}, "counts": {"accepted": 7}}


@given(
    st.lists(st.floats(allow_nan=False, width=64)),
    st.lists(st.floats(width=32), min_size=1, max_size=50),
)
def test_every_float_comes_back_to_the_last_bit(values: list[float], params: list[float]) -> None:
    tensor = torch.tensor(params, dtype=torch.float32)
    tensors, back = snapshot_file.loads(snapshot_file.dumps({"params": tensor}, {"x": values}))
    assert [struct.pack("<d", value) for value in back["x"]] == [
        struct.pack("<d", value) for value in values
    ]
    assert tensors["params"].numpy().tobytes() == tensor.numpy().tobytes()


def test_values_keep_their_types_and_order() -> None:
    values: dict[str, Any] = {
        "e": "ε ∞ \x00 \"'",
        "n": None,
        "t": True,
        "i": 2**63,
        "inf": math.inf,
        "o": {"b": 1, "a": [[0.1, 3], []]},
    }
    _, back = snapshot_file.loads(snapshot_file.dumps({"params": torch.zeros(1)}, values))
    assert back == values
    assert list(back["o"]) == ["b", "a"]


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 50, -1])
def test_a_truncated_snapshot_is_an_error(keep: int) -> None:
    data = snapshot_file.dumps({"params": torch.arange(9.0)}, VALUES)
    with pytest.raises(ServiceError, match="snapshot: damaged"):
        snapshot_file.loads(data[:keep])


@given(st.data())
def test_no_altered_bit_is_another_model(data: st.DataObject) -> None:
    good = snapshot_file.dumps({"params": torch.arange(9.0)}, VALUES)
    bad = bytearray(good)
    bad[data.draw(st.integers(0, len(bad) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ServiceError, match="snapshot: damaged"):
        snapshot_file.loads(bytes(bad))


def with_checksum(metadata: dict[str, str] | None) -> bytes:
    data = safetensors.torch.save({"params": torch.zeros(2)}, metadata)
    return b"TCTSTAT1" + xxhash.xxh3_64_digest(data) + data


def test_one_without_a_checksum_is_refused() -> None:
    data = with_checksum({"tacit": "1", "values": json.dumps(VALUES)})
    assert snapshot_file.loads(data)[1] == VALUES
    with pytest.raises(ServiceError, match="snapshot: damaged"):
        snapshot_file.loads(data[16:])


@pytest.mark.parametrize(
    "metadata", [None, {"tacit": "1"}, {"values": "{}"}, {"tacit": "1", "values": "{"}]
)
def test_a_safetensors_file_that_is_no_snapshot_is_an_error(
    metadata: dict[str, str] | None,
) -> None:
    with pytest.raises(ServiceError, match="snapshot: damaged"):
        snapshot_file.loads(with_checksum(metadata))


def test_another_version_is_refused_by_its_name() -> None:
    data = with_checksum({"tacit": "2", "values": json.dumps(VALUES)})
    with pytest.raises(
        ServiceError, match="snapshot: has format 2, this tacit reads 1: a newer one"
    ):
        snapshot_file.loads(data)
