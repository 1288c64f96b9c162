"""Defaults of privacy.pushes, clip and batch, which depend on other sections of the run file."""

from __future__ import annotations

from tacit.config.sections import MOST_PUSHES, Privacy
from tacit.config.traits import Traits

_USUAL = Traits()
_BATCH = 0.25  # of an edge's rows, where they are fewer than the usual batch


def with_whole_batch(privacy: Privacy, rows: int, traits: Traits = _USUAL) -> Privacy:
    """Return `privacy` with a batch in records, where the file states a part of an edge's `rows`.

    Where there are passes over the rows, or all are read at once, that makes the batch. Raises
    ValueError where the file states another.
    >>> with_whole_batch(Privacy(batch=0.25), 1001).batch
    250.0
    """
    passes = traits.passes
    if traits.every_row:
        if "batch" in privacy.model_fields_set and privacy.batch != rows:
            raise ValueError(
                f"privacy.batch={privacy.batch:g}: every row is read, once; leave it out"
            )
        return privacy.model_copy(update={"batch": float(rows)})
    if passes:
        batch = max(1.0, rows / passes)
        if "batch" in privacy.model_fields_set and abs(privacy.batch - batch) > 1e-9 * batch:
            raise ValueError(
                f"privacy.batch={privacy.batch:g}: {passes} batches of a pass over {rows} rows "
                f"have {batch:g} each; leave it out"
            )
        return privacy.model_copy(update={"batch": batch})
    if privacy.batch >= 1:
        return privacy
    return privacy.model_copy(update={"batch": float(max(1, int(privacy.batch * rows)))})


def filled(privacy: Privacy, traits: Traits, updates: int, workers: int, rows: int) -> Privacy:
    """Return `privacy` with `pushes`, `clip` and `batch` where a run file leaves them out.

    rows: of an edge, a public number. The usual batch stays where it is possible.

    Filled-in values count as given and enter the fingerprint. `pushes` is filled in only where
    noise is calibrated for a guarantee. Raises ValueError for more pushes than a file may name.
    """
    if not privacy.private:
        return privacy
    defaults: dict[str, int | float | None] = {"clip": None, "pushes": None}
    if traits.usual_clip is not None:
        defaults["clip"] = min(max(traits.usual_clip, privacy.clip_min), privacy.clip_max)
    if privacy.noise_multiplier is None:
        defaults["pushes"] = traits.pushes_for(updates, privacy.noise_at, workers)
    if privacy.batch > rows:
        defaults["batch"] = float(max(1, int(_BATCH * rows)))
    lacking = {
        key: value
        for key, value in defaults.items()
        if value is not None and key not in privacy.model_fields_set
    }
    if lacking.get("pushes", 0) > MOST_PUSHES:
        raise ValueError(
            f"privacy.pushes={lacking['pushes']}: Input should be less than or equal to "
            f"{MOST_PUSHES}"
        )
    return privacy.model_copy(update=lacking)
