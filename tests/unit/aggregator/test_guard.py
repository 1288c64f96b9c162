"""The norm bound holds for every honest update, and is worth having.

The bucket lets through its burst and its rate.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tacit_services.aggregator.ingest.guard import norm_bound
from tacit_services.transport.bucket import Bucket

from tacit import config
from tacit.errors import ConfigError
from tests.helpers.run_files import Layer, run_file

steady = settings(derandomize=True, deadline=None, max_examples=60)
SERVER = '[privacy]\nmechanism="gaussian"\nnoise_at="server"\n'
RUN: Layer = {"run": {"updates": 9}}


def honest_norms(count: int, clip: float, batch: int, z: float, size: int) -> torch.Tensor:
    """Return the norms of (sum + noise)/L at its longest.

    All examples of a Poisson batch point the same way, with norm C.
    """
    generator = torch.Generator().manual_seed(3)
    examples = torch.poisson(torch.full((count,), float(batch)), generator=generator)
    direction = torch.full((size,), 1 / math.sqrt(size))
    noise = torch.randn(count, size, generator=generator) * z * clip
    norms: torch.Tensor = torch.linalg.vector_norm(
        examples[:, None] * clip * direction + noise, dim=1
    )
    return norms / batch


@pytest.mark.parametrize(("batch", "z", "size"), [(32, 1.0, 650), (256, 0.5, 50), (16, 8.0, 2000)])
def test_honest_updates_pass_at_the_stated_rate_and_a_bound_too_low_would_not(
    batch: int, z: float, size: int
) -> None:
    # 2,000 of the longest honest updates at a false-alarm probability of 5 %: at most 5 % + 4 sigma
    # = 7 % are refused (chance below 1e-4 under the claim); at half the bound nearly all are, so
    # this test can fail.
    norms = honest_norms(2000, 0.5, batch, z, size)
    bound = norm_bound(0.5, batch, z, size, false_alarm=0.05)
    assert float((norms > bound).float().mean()) <= 0.07
    assert float((norms > bound / 2).float().mean()) > 0.5
    # At the default nothing of it is, and the price is less than a doubling.
    assert not bool((norms > norm_bound(0.5, batch, z, size)).any())
    assert norm_bound(0.5, batch, z, size) < 2.5 * bound


@steady
@given(
    st.floats(1e-6, 1e6),
    st.floats(1, 1e4),
    st.floats(0.1, 1e3),
    st.integers(1, 10**7),
    st.floats(1e-12, 0.1),
)
def test_the_bound_rises_with_everything_that_makes_updates_longer(
    clip: float, batch: float, z: float, size: int, alarm: float
) -> None:
    bound = norm_bound(clip, batch, z, size, false_alarm=alarm)
    assert clip < bound < math.inf
    assert norm_bound(2 * clip, batch, z, size, false_alarm=alarm) == pytest.approx(2 * bound)
    assert norm_bound(clip, batch, 2 * z, size, false_alarm=alarm) > bound
    assert norm_bound(clip, batch, z, 2 * size, false_alarm=alarm) > bound
    assert norm_bound(clip, batch, z, size, factor=2, false_alarm=alarm) > bound
    assert norm_bound(clip, batch, z, size, false_alarm=alarm / 10) > bound


@steady
@given(st.floats(0.1, 100), st.integers(1, 10), st.lists(st.floats(0, 3), min_size=1, max_size=50))
def test_a_bucket_lets_through_its_burst_and_then_its_rate(
    rate: float, burst: int, pauses: list[float]
) -> None:
    bucket, now, passed = Bucket(rate, burst, float(burst), 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        wait = bucket.take(now)
        passed += wait == 0
        assert passed <= burst + rate * now + 1e-6
        if wait:  # after what it says, there is room
            assert Bucket(rate, burst, bucket.tokens, now).take(now + wait * (1 + 1e-9)) == 0


def test_a_clock_that_stands_still_or_goes_back_gives_nothing_away() -> None:
    bucket = Bucket(1.0, 1, 1.0, 100.0)
    assert bucket.take(100.0) == 0
    assert bucket.take(50.0) == pytest.approx(1.0)
    assert bucket.take(50.5) == pytest.approx(0.5)


class TestRunFile:
    def parsed(self, more: str, name: str = "mapa") -> config.RunFile:
        return run_file(RUN, more, algorithm={"name": name})

    def test_off_by_default_and_not_in_the_fingerprint(self) -> None:
        plain, guarded = (
            self.parsed(""),
            self.parsed("[guard]\nnorm_factor=1.5\nrate=2.0\nquarantine_after=3"),
        )
        assert (plain.guard.active, guarded.guard.active) == (False, True)
        assert plain.fingerprint() == guarded.fingerprint()
        assert self.parsed("[guard]\nburst=9").guard.active is False

    @pytest.mark.parametrize(
        ("more", "name", "message"),
        [
            (
                '[privacy]\nmechanism="none"\n[guard]\nnorm_factor=1',
                "asgd",
                "mechanism=none at the edge gives no",
            ),
            (
                '[privacy]\nmechanism="knorm"\n[guard]\nnorm_factor=1',
                "mapa",
                "mechanism=knorm at the edge gives no",
            ),
            (
                '[privacy]\nmechanism="gaussian"\nnoise_at="server"\n[guard]\nnorm_factor=1',
                "mapa",
                "gaussian at the server gives no bound",
            ),
            ("[guard]\nnorm_factor=0.5", "mapa", "guard.norm_factor=0.5"),
            ("[guard]\nrate=0", "mapa", "guard.rate=0"),
            ("[guard]\nnorm=1", "mapa", "guard.norm=1: unknown key"),
        ],
    )
    def test_what_cannot_be_is_refused_in_one_line(
        self, more: str, name: str, message: str
    ) -> None:
        with pytest.raises(ConfigError) as refused:
            self.parsed(more, name)
        assert message in str(refused.value)
        assert "\n" not in str(refused.value)
