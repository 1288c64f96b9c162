"""What is uploaded to a host lies there whole, or not at all, and leaves the runs their disk."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tacit_services.federation.file_pool import BadUpload, FilePool, NoRoom

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
