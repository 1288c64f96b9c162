"""The results of a run appear whole: whoever sees the summary sees all that is of it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from tacit_services.aggregator.reporting import results
from tacit_services.disk import files

NAMES = ("model.safetensors", "ledger.json", "definition.json", "plot.png", "summary.json")


def draft(out: Path, content: str) -> Path:
    unfinished = out / ".new"
    unfinished.mkdir()
    for name in NAMES:
        files.write(unfinished / name, content.encode(), None)
    return unfinished


def seen(out: Path) -> set[str] | None:
    """Return what a reader finds that looks for the summary first and last; None: none is whole."""
    try:
        before = (out / "summary.json").read_text()
        found = {(out / name).read_text() for name in NAMES}
        if (out / "summary.json").read_text() != before:
            return None
    except FileNotFoundError:
        return None
    return found


def test_no_reader_sees_a_mixture_of_two_results(tmp_path: Path) -> None:
    done = threading.Event()
    looks: list[set[str]] = []

    def read() -> None:
        while not done.is_set():
            if (found := seen(tmp_path)) is not None:
                looks.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(60):
            unfinished = draft(tmp_path, str(number))
            results._publish(unfinished, tmp_path)
            unfinished.rmdir()
    finally:
        done.set()
        reader.join()
    assert seen(tmp_path) == {"59"}
    assert looks
    assert all(len(found) == 1 for found in looks)


def test_results_have_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write(tmp_path / "model", b"", None)
        files.write(tmp_path / "secret", b"", files.SECRET)
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("model", "secret")]
    assert modes == [0o640, 0o600]
