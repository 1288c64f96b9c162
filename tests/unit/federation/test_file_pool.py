"""What is uploaded to a host lies there whole, or not at all, and leaves the runs their disk."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tacit_services.federation.file_pool import UNNAMED, BadUpload, FilePool, NoRoom, OverQuota

CONTENT = b"weights" * 100
DIGEST = hashlib.sha256(CONTENT).hexdigest()


async def pieces(*contents: bytes) -> AsyncIterator[bytes]:
    """Yield what comes of an upload."""
    for content in contents:
        yield content


def test_a_file_is_kept_under_its_sha256(tmp_path: Path) -> None:
    pool = FilePool(tmp_path)
    asyncio.run(pool.take(DIGEST, pieces(CONTENT[:9], CONTENT[9:])))
    path = pool.path(DIGEST)
    assert path is not None
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("digest", ["0" * 64, "../../x", "", DIGEST.upper()])
def test_another_content_or_name_leaves_nothing(tmp_path: Path, digest: str) -> None:
    pool = FilePool(tmp_path / "files")
    with pytest.raises(BadUpload):
        asyncio.run(pool.take(digest, pieces(CONTENT)))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_no_upload_takes_the_last_of_the_disk(tmp_path: Path) -> None:
    # Given: room for half of what comes
    free = shutil.disk_usage(tmp_path).free
    pool = FilePool(tmp_path, reserve=free - (1 << 27))
    # When
    with pytest.raises(NoRoom):
        asyncio.run(pool.take(DIGEST, pieces(*[bytes(1 << 24)] * 16)))
    # Then
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_takes_no_upload(tmp_path: Path) -> None:
    pool = FilePool(tmp_path, reserve=1 << 62)
    with pytest.raises(NoRoom):
        asyncio.run(pool.take(DIGEST, pieces(CONTENT)))


def uploaded(pool: FilePool, content: bytes, by: str) -> str:
    """Upload a file as somebody; returns its SHA-256."""
    digest = hashlib.sha256(content).hexdigest()
    asyncio.run(pool.take(digest, pieces(content[:3], content[3:]), by))
    return digest


def test_nobody_has_more_at_the_host_than_their_quota(tmp_path: Path) -> None:
    pool = FilePool(tmp_path, quota=10)
    uploaded(pool, b"123456", "ada")
    for _ in range(2):  # what was refused does not count
        with pytest.raises(OverQuota, match="ada: has as many uploads"):
            uploaded(pool, b"abcdef", "ada")
    uploaded(pool, b"abcdef", "bob")
    again = FilePool(tmp_path, quota=10)  # the host is started again
    with pytest.raises(OverQuota):
        uploaded(again, b"ghijkl", "ada")
    uploaded(again, b"1234", "ada")


def test_a_file_that_two_upload_counts_once(tmp_path: Path) -> None:
    pool = FilePool(tmp_path, quota=15)
    for _ in range(3):
        uploaded(pool, b"1234567", "ada")
        uploaded(pool, b"1234567", "bob")
    uploaded(pool, b"abcdefgh", "bob")


def test_old_files_that_no_offer_names_go_and_count_no_more(tmp_path: Path) -> None:
    now = [2e9]
    pool = FilePool(tmp_path, quota=14, clock=lambda: now[0])
    named, stale, asked = (
        uploaded(pool, content, "ada") for content in (b"named", b"stale", b"ask")
    )
    for digest in (named, stale, asked):
        assert pool.wanted(digest)
    assert pool.sweep({named}) == []
    now[0] += UNNAMED - 1
    assert pool.wanted(asked)
    now[0] += 2
    assert pool.sweep({named}) == [stale]
    assert [pool.path(digest) is None for digest in (named, stale, asked)] == [False, True, False]
    uploaded(pool, b"more", "ada")
    assert not pool.wanted(stale)
