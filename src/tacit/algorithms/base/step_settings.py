"""The checks that all algorithms with local steps share."""

from __future__ import annotations

from tacit.config.algorithm_contract import Sections


def local_steps_agree(name: str, run: Sections) -> None:
    """Raise ValueError where a run of local steps contradicts itself."""
    if run.guard.norm_factor is not None:
        raise ValueError(
            f"guard.norm_factor: {name} sends models, not gradients; no bound is known"
        )
    if run.privacy.clip is None and run.privacy.private:
        raise ValueError(f"privacy.clip: {name} has no schedule for it; set it, to 2 for example")
