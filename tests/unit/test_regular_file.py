"""A pipe, a device, a socket or a folder in a file's place is refused at once, by every reader."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tacit_services.disk.secret_file import kept_secret
from tacit_services.journal.journal_file import open_journal
from tacit_services.project.guess import guessed
from tacit_services.settings import load_policy
from tacit_services.transport import rest_client
from tacit_services.transport.tls import context_trusting
from tacit_services.worker.heartbeat import judged

from tacit import config, exported, regular_file
from tacit.datasets.own.array_values import Bounds, Values
from tacit.datasets.own.arrays import ArraysReader
from tacit.datasets.own.file_reading import digest, located
from tacit.datasets.own.images import opened_picture
from tacit.datasets.own.table_file import batches
from tacit.errors import TacitError

ARRAYS = ArraysReader("x", "y", None, Values((2,), Bounds(0.0, 1.0), 2))
READERS: dict[str, Callable[[Path], object]] = {
    "run file": config.load,
    "policy": load_policy,
    "token": rest_client.token,
    "secret": lambda path: kept_secret(path, "TACIT_TOKEN_FILE"),
    "authority": context_trusting,
    "journal": open_journal,
    "health": lambda path: judged(path, 1.0, 1.0),
    "data": lambda path: located(path.name, path.parent),
    "digest": digest,
    "table": lambda path: list(batches(path, ["a"])),
    "sample": lambda path: guessed(path, None, None),
    "arrays": lambda path: list(ARRAYS.inputs(path)),
    "predict": lambda path: exported.read(path.parent),
}


def special_file(folder: Path, kind: str) -> Path:
    """Make something that is no file, under the name of a model's first file."""
    path = folder / "model.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as endpoint:
            endpoint.bind(str(path))
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    with pytest.raises(TacitError) as refused:
        READERS[reader](special_file(Path(), kind).absolute())
    assert any(word in str(refused.value) for word in ("a pipe", "a device", "a socket", "leaves"))


def test_a_picture_is_no_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1.png")
    with pytest.raises(OSError, match="is a pipe"), opened_picture(tmp_path / "1.png", 10):
        pass


def test_a_file_is_opened_through_links_and_read_no_further_than_allowed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12\r\n34")
    (tmp_path / "link").symlink_to("file")
    assert regular_file.text(tmp_path / "link") == "12\n34"
    with pytest.raises(OSError, match="more than 3 bytes"):
        regular_file.content(tmp_path / "file", 3)
    with pytest.raises(IsADirectoryError):
        regular_file.opened(tmp_path)
