"""Defaults of privacy.pushes and privacy.clip, which depend on other sections of the run file."""

from __future__ import annotations

from tacit.config.contract import AlgorithmSection
from tacit.config.sections import MOST_PUSHES, Privacy


def filled(privacy: Privacy, algorithm: AlgorithmSection, updates: int, workers: int) -> Privacy:
    """Return `privacy` with `pushes` and `clip` where a run file leaves them out.

    Filled-in values count as given and enter the fingerprint. `pushes` is filled in only where
    noise is calibrated for a guarantee. Raises ValueError for more pushes than a file may name.
    """
    if not privacy.private:
        return privacy
    found: dict[str, int | float | None] = {"clip": None, "pushes": None}
    if (usual := algorithm.usual_clip) is not None:
        found["clip"] = min(max(usual, privacy.clip_min), privacy.clip_max)
    if privacy.noise_multiplier is None:
        cost = algorithm.cost(workers, privacy.noise_at)
        found["pushes"] = algorithm.pushes_for(updates, cost, workers)
    lacking = {
        key: value
        for key, value in found.items()
        if value is not None and key not in privacy.model_fields_set
    }
    if lacking.get("pushes", 0) > MOST_PUSHES:
        raise ValueError(
            f"privacy.pushes={lacking['pushes']}: Input should be less than or equal to "
            f"{MOST_PUSHES}"
        )
    return privacy.model_copy(update=lacking)
