"""The checks that all algorithms with local steps share."""

from __future__ import annotations

from tacit.config.algorithm_contract import Sections


def steps_in_order(fewest: int, most: int | None) -> None:
    """Raise ValueError where H_max is below H_min."""
    if most is not None and most < fewest:
        raise ValueError(f"steps_max={most} is below steps_min={fewest}")


def local_steps_agree(name: str, run: Sections) -> None:
    """Raise ValueError where a run of local steps contradicts itself."""
    if run.guard.norm_factor is not None:
        raise ValueError(
            f"guard.norm_factor: {name} sends models, not gradients; no bound is known"
        )
    if run.privacy.clip is None and run.privacy.private:
        raise ValueError(f"privacy.clip: {name} has no schedule for it; set it, to 2 for example")
