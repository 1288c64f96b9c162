"""The attacks on one model, and the report on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from tacit.attacks.attack_report import AttackedKind, AttackReport, AttributeFigures
from tacit.attacks.attacked_rows import RecordRows
from tacit.attacks.attribute_guess import OneHotColumn, attribute_figures
from tacit.attacks.membership_attacks import MembershipScores, ShadowSignals, attacks
from tacit.attacks.sacro_form import sacro_form
from tacit.config import RunFile
from tacit.config.own_table import TableData
from tacit.datasets.own.schema import Category
from tacit.errors import DataError
from tacit.exported.stored import StoredPrivacy
from tacit.models import Model
from tacit_services.statements.stating import today
from tacit_services.versions import own_version

_ADD_OR_REMOVE = "add-or-remove-one"
_MOST_VALUES = 50  # of a column that is guessed
_FEWEST = 20  # members, and others: fewer show nothing
SEED = 1


@dataclass(frozen=True, slots=True)
class AttackedModel:
    """A model under attack, and what its run states of it.

    sha256: of the weights as they were trained. definition: the run's fingerprint.
    """

    run: RunFile
    model: Model
    params: torch.Tensor
    sha256: str
    which: str
    definition: str
    privacy: StoredPrivacy

    @property
    def epsilon(self) -> float | None:
        """The ε of one unit's membership; None: no guarantee that bounds these attacks."""
        bounded = self.privacy.adjacency == _ADD_OR_REMOVE
        return self.privacy.epsilon if bounded else None


@dataclass(frozen=True, slots=True)
class AttackedAs:
    """What was attacked: whose rows, in which words, which training, and with which ε.

    kind: public, synthetic or owner. twin: whether a twin of the model was attacked.
    """

    kind: AttackedKind
    rows_of: str
    twin: bool
    epsilon: float | None


@dataclass(frozen=True, slots=True, eq=False)
class AttackFindings:
    """A report, and the scores that its figures are of."""

    report: AttackReport
    scores: list[MembershipScores]

    def sacro(self) -> dict[str, object]:
        """Return the report in SACRO-ML's form."""
        return sacro_form(self.report, self.scores)


def findings(
    attacked: AttackedModel,
    model: tuple[Model, torch.Tensor],
    rows: RecordRows,
    inside: npt.NDArray[np.bool_],
    shadows: ShadowSignals | None,
    how: AttackedAs,
) -> AttackFindings:
    """Attack a model, and report on it.

    model: what is attacked, with its parameters: `attacked`, or its twin. inside (records,): the
    truth. Raises DataError for too few rows.
    """
    members, others = int(inside.sum()), int((~inside).sum())
    if min(members, others) < _FEWEST:
        raise DataError(
            f"attacked rows: {members} members and {others} others; attacks need {_FEWEST} of each"
        )
    signals = rows.signals(*model)
    if not np.isfinite(signals).all():
        raise DataError("attacked rows: the model's outputs are not finite numbers")
    scores = list(attacks(signals, inside, rows.classes(), shadows, SEED))
    report = AttackReport.model_validate(
        {
            "run": attacked.run.run.name,
            "definition": attacked.definition,
            "model_sha256": attacked.sha256,
            "which": attacked.which,
            "rows": how.kind,
            "rows_of": how.rows_of,
            "trained": "a twin" if how.twin else "this model",
            "unit": attacked.privacy.unit,
            "members": members,
            "others": others,
            "shadows": 0 if shadows is None else len(shadows.signals),
            "epsilon": attacked.epsilon,
            "trained_epsilon": how.epsilon,
            "delta": attacked.privacy.delta,
            "attacks": [each.figures() for each in scores],
            "attributes": list(_attributes(attacked.run, model, rows, inside)),
            "tacit_version": own_version(),
            "at": today().isoformat(),
        }
    )
    return AttackFindings(report.beside_its_bound(), scores)


def _attributes(
    run: RunFile, model: tuple[Model, torch.Tensor], rows: RecordRows, inside: npt.NDArray[np.bool_]
) -> Iterator[AttributeFigures]:
    """Yield what was guessed of each category of a table whose rows are the units."""
    if rows.records != len(rows.y):
        return
    chosen = torch.from_numpy(inside)
    members, others = (
        RecordRows.each_alone(rows.x[part], rows.y[part]) for part in (chosen, ~chosen)
    )
    for column in categories(run):
        yield attribute_figures(*model, members, others, column)


def categories(run: RunFile) -> Iterator[OneHotColumn]:
    """Yield the categories of a table that a row's x has as they are."""
    data = run.data
    if not isinstance(data, TableData) or data.features != "none" or data.unit is not None:
        return
    first = 0
    for column in data.schema_of_rows(run.folder).features:
        if isinstance(column, Category) and column.width <= _MOST_VALUES:
            yield OneHotColumn(column.name, first, column.width)
        first += column.width
