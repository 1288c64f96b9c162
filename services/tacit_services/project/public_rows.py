"""Rows that are nobody's secret, in the place of private ones: of a public file, or made up."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tacit.config import RunFile
from tacit.config.definition import Definition
from tacit.config.own_data import OwnData
from tacit.datasets import load
from tacit.datasets.own.own_rows import OwnRows, alike
from tacit.datasets.own.rows import EncodedRows, each_its_own
from tacit.datasets.own.rows_file import UnitRows
from tacit.datasets.source import Benchmark, EdgePart
from tacit.datasets.stand_in import PublicParts, StandIn, stand_in
from tacit.errors import ConfigError, PrivacyError
from tacit.known_data.owned import EDGE
from tacit_services.identity import own_ledgers
from tacit_services.identity.public_files import overlaps
from tacit_services.project.answered import read_answers
from tacit_services.project.made_up_rows import MadeUpRows


def dealt(definition: Definition[Any], rows: StandIn, seed: int) -> PublicParts:
    """Return each edge's part of public rows, with as many units as the run file says."""
    count = definition.plans.rows
    data = definition.data
    of_unit = None
    if isinstance(data, OwnData) and data.unit is not None:
        of_unit = UnitRows(data.unit_rows or 1, data.unit_gradient == "mean")
    edges = rows.edges(definition.edges.count, count, of_unit, seed)
    return PublicParts([EdgePart(part, count) for part in edges], rows.test)


def public_rows(run: RunFile, public: str, root: Path | None, home: Path) -> StandIn:
    """Return public rows as every edge of the run has them.

    public: a file beside the run file or elsewhere; of published data the name of a data set. root:
    where published data lies. home: of the ledgers.

    Private rows that lie here are compared with the public ones, and used for nothing else. Raises
    ConfigError, DataError, and PrivacyError for private rows.
    """
    _refuse_vertical(run)
    target = run.source.target
    if isinstance(run.source, Benchmark):
        rows = load(public, "train", root, None, run.source.features, run.source.text)
        if (rows.x.shape[1:], rows.classes) != (run.source.shape[0], run.source.shape[1]):
            raise ConfigError(
                f"public rows {public}: are of another form than {run.source.name}; name a data "
                "set of the same shape and classes"
            )
        x = rows.x.numpy()
        y = rows.y.numpy()
        rows_ = [EncodedRows(x, y, each_its_own(x, y))]
        return stand_in(rows_, target, run.run.seed, each_alone=True)
    assert isinstance(run.data, OwnData)
    reader = run.data.reader(run.folder)
    path = Path(public).resolve()
    if path.exists():
        digest = reader.content(path)
    else:
        digest = ""
    if not digest:
        raise ConfigError(f"public rows {public}: no such file")
    _refuse_private(run, run.data, path, digest, home)
    parts = list(reader.read(path))
    if sum(len(part.y) for part in parts) < 50:
        raise ConfigError(f"public rows {public}: fewer than 50 rows say nothing")
    return stand_in(parts, target, run.run.seed, each_alone=run.data.unit is None)


def rows_of_answers(run: RunFile, answers: Path, seed: int) -> StandIn:
    """Return made-up rows that the answers of `tacit ask` tell of. Raises ConfigError.

    They are of nobody, so they are compared with no private rows.
    """
    _refuse_vertical(run)
    made_up = MadeUpRows(run, read_answers(answers))
    assert isinstance(run.data, OwnData)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        made_up.write(path, seed)
        parts = list(run.data.reader(run.folder).read(path))
    return stand_in(parts, run.source.target, run.run.seed, each_alone=run.data.unit is None)


def _refuse_vertical(run: RunFile) -> None:
    if run.algorithm.worker == "party":
        raise ConfigError("public rows: a vertical run has no edges with rows of their own")


def _refuse_private(run: RunFile, data: OwnData, path: Path, digest: str, home: Path) -> None:
    """Raise PrivacyError for the training file, and for any that a ledger knows."""
    if (owner := own_ledgers.known(path, digest, home)) is not None:
        raise PrivacyError(
            f"public rows {path.name}: a ledger knows it (as {owner}); settings that are chosen on "
            "private rows tell of them, at no ε that anybody counts. Use public or made-up rows"
        )
    files = {data.train.replace(EDGE, str(number)): number for number in range(run.edges.count)}
    reader = data.reader(run.folder)
    source = run.source
    training = []
    assert isinstance(source, OwnRows)
    for name, number in files.items():
        private = (run.folder / name).resolve()
        if not private.exists():
            continue
        if path.is_relative_to(private) or alike(reader, path, private):
            raise PrivacyError(
                f"public rows {path.name}: is a training file, or a copy; use public or made-up "
                "rows"
            )
        training.append(source.owned(number))
    for overlap in overlaps(source.public(path), training, home):
        if overlap.private:
            raise PrivacyError(
                f"public rows {path.name}: about {overlap.share:.0%} of it are rows of "
                f"{overlap.of}; use public or made-up rows"
            )
