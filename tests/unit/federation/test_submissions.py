"""What a hostile researcher submits to a host: nothing of it is executed, nobody is hurt by it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tacit_services.federation.file_pool import FilePool
from tacit_services.federation.people import Person, Right
from tacit_services.federation.run_records import RunRecord, RunRecords
from tacit_services.federation.submissions import Refused, Submissions
from tacit_services.offers.offer import Offer, Researcher, key_text

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
ADA = Person("ada", Right.RESEARCHER, since=0.0)
FILE: dict[str, Any] = {
    "run": {"updates": 5},
    "data": {
        "kind": "table",
        "target": "y",
        "rows": 400,
        "columns": [["a", {"low": -4, "high": 4}], ["y", {"values": ["no", "yes"]}]],
    },
    "model": {"name": "logistic"},
    "algorithm": {"name": "mapa"},
    "privacy": {"epsilon": 2.0, "delta": 1e-5},
    "edges": {"count": 1},
}


class Desk:
    """A host's desk for submissions, and a researcher who writes offers by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pool = FilePool(folder / "files")
        self.records = RunRecords(folder / "runs")
        (folder / "code").mkdir()
        self.submissions = Submissions(self.records, self.pool, folder / "code")

    def upload(self, content: bytes) -> str:
        """Upload a file; returns its SHA-256."""

        async def pieces() -> AsyncIterator[bytes]:
            yield content

        digest = hashlib.sha256(content).hexdigest()
        asyncio.run(self.pool.take(digest, pieces()))
        return digest

    def submit(
        self, run: str, at_host: dict[str, str] | None = None, test: str | None = None, **file: Any
    ) -> RunRecord:
        """Submit an offer whose run file has other sections."""
        researcher = Researcher(name="ada", key=key_text(KEY))
        offer = Offer(run=run, file=FILE | file, researcher=researcher).signed(KEY)
        content = {"offer": offer.content().decode(), "at_host": at_host or {}, "test": test}
        return self.submissions.taken(content, ADA)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize(
    ("name", "test", "more"),
    [
        ("planted.py", "planted.py", {"algorithm": {"name": "planted:Rule", "edge": {}}}),
        ("planted.py", "planted.py", {"evaluation": {"metrics": ["planted:score"]}}),
        ("tests/planted.py", "tests", {"evaluation": {"metrics": ["tests.planted:score"]}}),
    ],
)
def test_code_that_is_called_the_test_set_is_not_executed(
    desk: Desk, name: str, test: str, more: dict[str, Any]
) -> None:
    # Given
    trace = desk.folder / "trace"
    code = desk.upload(f"open({str(trace)!r}, 'w')\n".encode())
    files = {name: code}
    if "/" in name:
        files["tests/__init__.py"] = desk.upload(b"")
    # When
    with pytest.raises(Refused) as refused:
        desk.submit("planted", files, test, **more)
    # Then
    assert refused.value.status == 403
    assert not trace.exists()


def test_a_test_set_stays_one(desk: Desk) -> None:
    rows = desk.upload(b"a,y\n" + b"".join(b"0.5,yes\n-0.5,no\n" for _ in range(20)))
    record = desk.submit("tested", {"rows.csv": rows}, "rows.csv")
    assert (record.name, record.state) == ("tested", "offered")
