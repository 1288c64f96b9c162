"""`tacit run` where the folder for temporary files has a long path, as batch systems give one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Prints where sockets lie, where other temporary files do, and whether a child can be asked for.
CHILD = """
import tempfile
from multiprocessing import forkserver, util
from tacit_services.children import preload
preload._IMPORTED.clear()
preload.prepare()
print(util.get_temp_dir())
print(tempfile.gettempdir())
print(len(forkserver._forkserver._forkserver_address) < 108)
"""


def test_sockets_lie_where_their_names_are_short_and_files_where_they_are_asked_for(
    tmp_path: Path,
) -> None:
    long = tmp_path / ("x" * 110)
    long.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        env=os.environ | {"TMPDIR": str(long)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    sockets, files, short = done.stdout.split()
    assert not sockets.startswith(str(long))
    assert not Path(sockets).exists()  # it went with its process
    assert (files, short) == (str(long), "True")
