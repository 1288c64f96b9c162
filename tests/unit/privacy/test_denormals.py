"""Denormal numbers are zero where rows are computed: in every thread, and nowhere else."""

from __future__ import annotations

import math
import threading

import pytest
import torch

from tacit.errors import PrivacyError
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.denormals import flushed
from tacit.privacy.release import Plan, Releaser, Steps, release_steps_together, release_together
from tacit.privacy.release.embeddings import EmbeddingPlan, EmbeddingReleaser
from tests.helpers import forked

THREADS = """
import torch
from tacit.privacy.private_sum.denormals import flush_pool, flushed
torch.set_num_threads(2)
flush_pool()
small = torch.full((2**21,), 1e-39)
with flushed():
    print(int((small * 1.5).count_nonzero()))
"""


def kept() -> int:
    """Return how many of some denormal numbers are not zero after an operation."""
    return int((torch.full((100,), 1e-39) * 1.5).count_nonzero())


def test_denormals_are_zero_inside_and_what_they_were_outside() -> None:
    assert kept() == 100
    with flushed():
        assert kept() == 0
        with flushed():
            assert kept() == 0
        assert kept() == 0  # the inner block leaves it as it found it
    assert kept() == 100
    with pytest.raises(KeyError), flushed():
        raise KeyError
    assert kept() == 100


def test_a_thread_of_its_own_flushes_for_itself() -> None:
    counts: list[int] = []

    def work() -> None:
        with flushed():
            counts.append(kept())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert (counts, kept()) == ([0], 100)


def test_the_threads_that_torch_divides_work_among_flush_too() -> None:
    completed = forked.finished(THREADS)
    assert completed.stdout.strip() == "0", completed.stderr


def test_a_processor_that_cannot_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "set_flush_denormal", lambda on: False)
    with pytest.raises(PrivacyError, match="denormal"), flushed():
        pass


def test_every_door_computes_rows_so() -> None:
    counts: list[int] = []
    zero = Clipped(torch.zeros(1, dtype=torch.float64), 1.0)

    def query(*_: object) -> Clipped:
        counts.append(kept())
        return zero

    plan = Plan("gaussian", 1.0, 1.0, 1.0, 1.0, 1.0, math.inf, 1e-5)
    door = Releaser(plan, Ledger(":memory:", "d"), Random())
    steps = Steps(1.0, 2, torch.zeros(1), torch.add)
    door.release(1.0, query)
    door.release_steps(steps, query)
    release_together([door], [1.0], lambda: [query()])
    release_steps_together([door], [steps], lambda which, params: [query()])
    party = EmbeddingReleaser(
        EmbeddingPlan("dp_sgd", 1.0, 1.0, 1e9, 1e-5, 1.0, 1.0), Ledger(":memory:", "d"), Random(), 1
    )

    def rows() -> torch.Tensor:
        counts.append(kept())
        return torch.zeros(1, 2)

    party.release(torch.tensor([0]), rows)
    party.step(torch.tensor([0]), rows)
    assert counts == [0] * 8
