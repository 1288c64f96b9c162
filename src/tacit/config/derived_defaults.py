"""Defaults of privacy.pushes and privacy.clip, which depend on other sections of the run file."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from tacit.config.algorithms import Algorithm
from tacit.config.sections import Edges, Privacy, Run

_ALGORITHM: TypeAdapter[Algorithm] = TypeAdapter(Algorithm)


def fill(content: dict[str, Any]) -> None:
    """Put `pushes` and `clip` into [privacy] of a run file's `content` where it leaves them out.

    Filled-in values count as given and enter the fingerprint. A file that will be refused stays as
    it is. `pushes` is filled in only where noise is calibrated for a guarantee.
    """
    try:
        algorithm = _ALGORITHM.validate_python(content.get("algorithm"))
        privacy = Privacy.model_validate(content.get("privacy", {}))
        edges = Edges.model_validate(content.get("edges", {}))
        run = Run.model_validate(content.get("run"))
    except ValidationError:
        return
    if privacy.private:
        found: dict[str, Any] = {"clip": _clip(algorithm, privacy)}
        if privacy.noise_multiplier is None:
            found["pushes"] = algorithm.pushes_for(run.updates, privacy, edges.count)
        known = {key: value for key, value in found.items() if value is not None}
        content["privacy"] = known | content.get("privacy", {})


def _clip(algorithm: Algorithm, privacy: Privacy) -> float | None:
    usual = algorithm.usual_clip
    return None if usual is None else min(max(usual, privacy.clip_min), privacy.clip_max)
