"""The model that a command attacks: in a run's results, or in a folder that was exported."""

from __future__ import annotations

from pathlib import Path

from tacit import exported
from tacit.exported.stored import StoredPrivacy
from tacit_services.attacking.attack_findings import AttackedModel


def of_results(results: Path, code: Path | None, which: str) -> tuple[AttackedModel, int]:
    """Return a model of the run whose results are in `results`, and how many updates it had.

    Raises as `exported.trained`.
    """
    of_run = exported.trained(results, code, which)
    attacked = AttackedModel(
        run=of_run.run,
        model=of_run.model,
        params=of_run.params,
        sha256=of_run.chosen.model_sha256,
        which=which,
        definition=of_run.summary.run_file_sha256,
        privacy=of_run.summary.privacy,
    )
    return attacked, of_run.summary.applied


def of_folder(folder: Path, *, trust_code: bool) -> AttackedModel:
    """Return the model that was exported to `folder`. Raises as `exported.read`."""
    model = exported.read(folder, trust_code=trust_code)
    return AttackedModel(
        run=model.run,
        model=model.model,
        params=model.params,
        sha256=model.facts["trained_sha256"],
        which="last",
        definition=model.run.fingerprint(),
        privacy=StoredPrivacy.model_validate(model.facts["privacy"]),
    )
