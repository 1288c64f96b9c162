"""A file is replaced whole, also by several at once; what died half-way is swept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tacit_services.disk import files

from tacit import file_lock


def test_several_that_write_at_once_each_write_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([number]) * 10_000 for number in range(8)]
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda data: files.write(path, data, files.SECRET), contents * 20))
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == files.SECRET


@pytest.mark.parametrize("name", [".file.new", ".file.0123abcd.new"])
def test_what_a_writer_that_died_has_left_is_swept(tmp_path: Path, name: str) -> None:
    left = tmp_path / name
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    files.write(tmp_path / "file", b"whole", files.SECRET)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_another_writes_still_is_not_swept(tmp_path: Path) -> None:
    left, fresh = tmp_path / ".file.0123abcd.new", tmp_path / ".file.4567abcd.new"
    left.write_bytes(b"half")
    fresh.write_bytes(b"half")
    os.utime(left, (0, 0))
    with file_lock.locked(left):
        files.write(tmp_path / "file", b"whole", files.SECRET)
    assert left.exists()
    assert fresh.exists()  # another process makes it now, and locks it in a moment


def test_files_of_other_names_are_left_alone(tmp_path: Path) -> None:
    others = [tmp_path / name for name in (".other.new", "file.new", ".files.1.new", ".file.1.old")]
    for other in others:
        other.write_bytes(b"")
        os.utime(other, (0, 0))
    files.write(tmp_path / "file", b"whole", files.SECRET)
    assert all(other.exists() for other in others)


def test_a_write_that_fails_leaves_nothing_but_what_was_there(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise OSError(28, "No space left on device")

    files.write(tmp_path / "file", b"old", files.SECRET)
    with pytest.raises(OSError, match="No space"):
        files.write_pieces(tmp_path / "file", pieces(), files.SECRET)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]
