"""A CSV in another encoding, as UTF-8 that arrow reads without Python.

Arrow reads ahead in a thread of its own. Where it asks Python to decode there, a program that
ends meanwhile is aborted, and a reader that is closed early may wait for ever.
"""

from __future__ import annotations

import codecs
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa

from tacit.errors import DataError
from tacit.regular_file import again, opened

_BLOCK = 1 << 20
_UTF8 = ("utf-8", "utf-8-sig", "ascii")  # arrow reads these itself, and passes over the mark


@contextmanager
def utf8_file(path: Path, encoding: str) -> Iterator[pa.NativeFile]:
    """Open the text at `path`, which is of this `encoding`, as UTF-8.

    Text of another encoding is copied into a file without a name in the folder for temporary files.
    Nobody else can open it, and it is gone when this process is. (On Windows it has a name, in a
    folder of this user's, and is gone at the end of the block.) Raises DataError where there is no
    room for it, UnicodeError, OSError.
    """
    if encoding in _UTF8:
        with pa.OSFile(str(path), "rb") as file:
            yield file
        return
    with _file_of_ours() as copy:
        _write(path, encoding, copy)
        with pa.OSFile(again(copy), "rb") as file:
            yield file


@contextmanager
def _file_of_ours() -> Iterator[IO[bytes]]:
    if os.name == "posix":
        with tempfile.TemporaryFile() as copy:
            yield copy
        return
    # A file without a name cannot be opened anew here: its folder is this user's alone.
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "copy").open("w+b") as copy:
        yield copy


def _write(path: Path, encoding: str, copy: IO[bytes]) -> None:
    decoder = codecs.getincrementaldecoder(encoding)()
    with opened(path) as file:
        last = False
        while not last:
            block = file.read(_BLOCK)
            last = not block
            text = decoder.decode(block, final=last).encode()
            try:
                copy.write(text)
                copy.flush()
            except OSError as error:
                raise DataError(
                    f"{path.name}: no copy as UTF-8 could be written into {tempfile.gettempdir()} "
                    f"({error.strerror}); save the file as UTF-8, or name a larger folder in TMPDIR"
                ) from error
