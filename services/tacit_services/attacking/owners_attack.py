"""Attacks with an owner's own rows, on the owner's machine: by loss alone, without shadow runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from tacit.attacks.attacked_rows import RecordRows
from tacit.config.own_data import OwnData
from tacit.datasets.own.rows import EncodedRows
from tacit.errors import ConfigError, DataError
from tacit_services.attacking.attack_findings import (
    AttackedAs,
    AttackedModel,
    AttackFindings,
    findings,
)


def with_owners_rows(attacked: AttackedModel, members: Path, others: Path) -> AttackFindings:
    """Attack a model by rows that it was trained on, and rows that it was not.

    Guarantee: rows are read here, and nothing of them is written but the figures of the report.
    Raises ConfigError, DataError.
    """
    data = attacked.run.data
    if not isinstance(data, OwnData):
        raise ConfigError(
            "--members, --others: are for a model of own data; of published data leave them out"
        )
    reader = data.reader(attacked.run.folder)
    files = []
    for option, path in (("--members", members), ("--others", others)):
        if not path.exists():
            raise DataError(f"{option} {path}: no such file or folder")
        parts = list(reader.read(path))
        if not parts:
            raise DataError(f"{option} {path}: has no rows")
        files.append(parts)
    each_alone = data.unit is None
    rows, inside = _together(files, each_alone=each_alone)
    how = AttackedAs("owner", "rows that their owner gave", False, attacked.epsilon)
    return findings(attacked, (attacked.model, attacked.params), rows, inside, None, how)


def _together(
    files: list[list[EncodedRows]], *, each_alone: bool
) -> tuple[RecordRows, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Return the rows of both files, and which records are of the first.

    Raises DataError where a unit is in both.
    """
    parts = [part for file in files for part in file]
    x, y = (
        torch.from_numpy(np.concatenate([getattr(part, name) for part in parts]))
        for name in ("x", "y")
    )
    counts = [sum(len(part.y) for part in file) for file in files]
    of_first = np.arange(len(y)) < counts[0]
    if each_alone:
        return RecordRows.each_alone(x, y), of_first
    units = np.concatenate([part.units for part in parts])
    names, record = np.unique(units, return_inverse=True)
    inside, outside = (
        np.bincount(record[rows], minlength=len(names)) for rows in (of_first, ~of_first)
    )
    if ((inside > 0) & (outside > 0)).any():
        raise DataError("--others: has units that are among --members, too; leave them out")
    return RecordRows(x, y, record), inside > 0
