"""A table as three files, public, private and test, and the project that `tacit new` makes of it.

The public sample is apart from the private rows, and both from the test rows, which no run sees.
"""

from __future__ import annotations

import csv
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tacit_services.project import new_folder
from tacit_services.project.draft import LOGISTIC, DraftRequest

from tacit import config
from tacit.config import RunFile
from tacit.config.own_data import OwnData
from tacit.datasets import Dataset
from tacit_lab.studies.tables_from_packages import HeaderAndRows, PackagedTable

_PUBLIC = 1000  # the most rows of the public sample, and a tenth of the table at the most
_TEST = 5000  # and a quarter at the most
_SEED = 1


@dataclass(frozen=True, slots=True)
class Project:
    """A folder as `tacit new` writes it, with the private rows in it; test: rows beside it."""

    run_file: Path
    test: Path

    def run(self, epsilon: float, seed: int) -> RunFile:
        """Return the run at `epsilon`: the one number of its file that is edited."""
        text = self.run_file.read_text(encoding="utf-8")
        text, count = re.subn(r"(?m)^epsilon = \S+", f"epsilon = {epsilon}", text)
        assert count == 1
        return config.parse(text, str(self.run_file), folder=self.run_file.parent, seed=seed)


def project(table: PackagedTable, read: HeaderAndRows, folder: Path) -> Project:
    """Return the project of `table`, made anew in `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    header, *rows = read
    order = np.random.default_rng(_SEED).permutation(len(rows))
    public = min(_PUBLIC, len(rows) // 10)
    test = public + min(_TEST, len(rows) // 4)
    parts = {"public": order[:public], "test": order[public:test], "train": order[test:]}
    for name, chosen in parts.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *(rows[place] for place in chosen)])
    request = DraftRequest(folder / "public.csv", table.target, None, LOGISTIC)
    written = folder / table.name
    new_folder.make(written, request, folder / "home")
    (folder / "train.csv").rename(written / "train.csv")
    return Project(written / "run.toml", folder / "test.csv")


def encoded(run: RunFile, path: Path) -> Dataset:
    """Return the rows at `path` as the run reads them."""
    assert isinstance(run.data, OwnData)
    from tacit.datasets.own.own_rows import together

    x, y = together(path, run.data.reader(run.folder))
    return Dataset(x, y, len(run.source.target.names), path.name)
