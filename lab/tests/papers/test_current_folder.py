"""The processes of figures run no file of the current folder that is in no SHA-256."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.nightly import nightly
from tests.system.testbed.test_current_folder import Place

SWEEP = """
import tempfile
from pathlib import Path
from tacit import config
from tacit_lab.papers.figures import sweep, testbed_figures
run = config.load(Path("run.toml"))
with tempfile.TemporaryDirectory() as folder:
    {}
"""


@pytest.mark.parametrize(
    "how",
    [
        "sweep.sweep({'f': [run]}, Path(folder), None, 1, print)",
        *nightly("testbed_figures.train(Path('run.toml'), Path(folder))"),
    ],
)
def test_the_processes_of_figures_execute_no_file_of_the_current_folder(
    tmp_path: Path, how: str
) -> None:
    place = Place(tmp_path)
    place.python(SWEEP.format(how))
    assert place.executed() == []
