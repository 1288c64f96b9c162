"""Snapshots beside the driver: the bytes that they had before, of the moment at which they were
begun, and the driver's errors.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import safetensors.torch
import torch
from tacit_services.aggregator.snapshots import Saving, draft
from tacit_services.journal import snapshot_file
from tacit_services.journal.store import Snapshot

from tacit.algorithms.base.records import EdgeRecord, Records, read
from tacit.errors import ServiceError
from tacit.protocol.messages import Hello
from tests.helpers.servers import PATIENCE

TENSORS = {
    "params": torch.arange(5.0),
    "steps": torch.arange(3),
    "none": torch.zeros(0),
    "flag": torch.tensor(True),
}


def records(*names: str) -> Records:
    hello = Hello("x", 8.0, 1e-5, "gaussian", 0.1, 0.1, 10.0, (), refusal='"edges": "\0edges"')
    return Records({name: EdgeRecord(replace(hello, edge=name)) for name in names})


def state(edges: Records) -> dict[str, object]:
    return {"version": 3, "halted": "\0edges", "edges": edges.dump(), "schedule": [0.1, 1e300]}


def test_a_draft_has_the_bytes_of_all_at_once() -> None:
    edges = records("edge-1", "edge-0", 'e"2')
    edges["edge-0"] = replace(edges["edge-0"], updates=7)
    packed = bytes(draft(TENSORS, state(edges), {"counts": {"accepted": 2}})())
    assert packed == snapshot_file.dumps(TENSORS, {"role": state(edges), "counts": {"accepted": 2}})
    tensors, values = snapshot_file.loads(packed)
    assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())
    assert list(values["role"]["edges"]) == ["edge-1", "edge-0", 'e"2']
    assert read(values["role"]["edges"])["edge-0"].updates == 7


def test_safetensors_itself_reads_what_is_packed() -> None:
    data = snapshot_file.dumps(TENSORS, {})[16:]
    tensors = safetensors.torch.load(data)
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {
        name: tensor.dtype for name, tensor in TENSORS.items()
    }


def test_a_draft_is_of_the_moment_at_which_it_was_begun() -> None:
    edges = records("edge-0")
    role = state(edges)
    begun = draft(TENSORS, role, {})
    edges["edge-0"] = replace(edges["edge-0"], updates=9)
    edges["edge-1"] = edges["edge-0"]
    role["version"] = 4
    edges.dump()
    values = snapshot_file.loads(bytes(begun()))[1]["role"]
    assert (values["version"], list(values["edges"])) == (3, ["edge-0"])
    assert values["edges"]["edge-0"]["updates"] == 0


class Gated:
    """A saver that waits to be let go, and then fails if it is told to."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.go, self.saved, self._failure = threading.Event(), list[Snapshot](), failure

    def save(self, snapshot: Snapshot) -> None:
        assert self.go.wait(PATIENCE)
        if self._failure is not None:
            raise self._failure
        self.saved.append(snapshot)

    def close(self) -> None:
        """Close nothing."""


def test_the_driver_goes_on_while_one_is_stored_and_hears_of_its_end_once() -> None:
    saver, saving = Gated(), Saving()
    saving.begin(saver, 5, lambda: b"state")
    assert saving.busy
    assert not saving.ended()
    saver.go.set()
    assert saving.ended(wait=True)
    assert saver.saved == [Snapshot(5, b"state")]
    assert not saving.busy
    assert not saving.ended(wait=True)
    saving.close()


def test_a_store_that_fails_meanwhile_is_the_drivers_error() -> None:
    saver, saving = Gated(ServiceError("store: gone")), Saving()
    saving.begin(saver, 5, lambda: b"state")
    saver.go.set()
    with pytest.raises(ServiceError, match="gone"):
        saving.ended(wait=True)
    assert not saving.busy  # another can be begun
    saving.close()
