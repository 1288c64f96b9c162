"""What a hostile researcher submits to a host: nothing of it is executed, nobody is hurt by it."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tacit_services.federation import submissions
from tacit_services.federation.file_pool import FilePool
from tacit_services.federation.offer_check import checked
from tacit_services.federation.people import Person, Right
from tacit_services.federation.run_facts import RunFacts
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


def checked_here(folder: Path) -> RunFacts:
    """Return the facts of a run, checked in this process."""
    return checked(folder, None)


class Desk:
    """A host's desk for submissions, and a researcher who writes offers by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pool = FilePool(folder / "files")
        self.records = RunRecords(folder / "runs")
        (folder / "code").mkdir()
        self.submissions = Submissions(self.records, self.pool, folder / "code", checked_here)

    def upload(self, content: bytes) -> str:
        """Upload a file; returns its SHA-256."""

        async def pieces() -> AsyncIterator[bytes]:
            yield content

        digest = hashlib.sha256(content).hexdigest()
        asyncio.run(self.pool.take(digest, pieces()))
        return digest

    def submit(
        self,
        run: str,
        /,
        at_host: dict[str, str] | None = None,
        test: str | None = None,
        **file: Any,
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


def test_the_same_again_is_the_same_run_and_another_of_its_name_is_refused(desk: Desk) -> None:
    rows = desk.upload(b"a,y\n" + b"".join(b"0.5,yes\n-0.5,no\n" for _ in range(20)))
    first = desk.submit("tested", {"rows.csv": rows}, "rows.csv")
    assert desk.submit("tested", {"rows.csv": rows}, "rows.csv") == first
    for test, more in ((None, {}), ("rows.csv", {"run": {"updates": 7}})):
        with pytest.raises(Refused, match="there is one of this name"):
            desk.submit("tested", {"rows.csv": rows}, test, **more)


def test_a_name_that_no_certificate_has_room_for_is_refused(desk: Desk) -> None:
    assert desk.submit("x" * 53).state == "offered"
    with pytest.raises(Refused, match="too long"):
        desk.submit("x" * 54)


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a")])
def test_a_file_that_is_a_folder_too_is_refused(desk: Desk, names: tuple[str, str]) -> None:
    digest = desk.upload(b"a,y\n1,yes\n")
    with pytest.raises(Refused, match="both a file and a folder"):
        desk.submit("both", dict.fromkeys(names, digest), "a")


def test_a_name_is_taken_while_its_run_is_checked(desk: Desk) -> None:
    # Given: a second submission under the name comes while the first one's files are placed
    refusals: list[str] = []

    class Slow(FilePool):
        def path(self, digest: str) -> Path | None:
            thread = threading.Thread(target=self._second)
            thread.start()
            thread.join()
            return super().path(digest)

        def _second(self) -> None:
            try:
                desk.submit("same", run={"updates": 6})
            except Refused as refused:
                refusals.append(str(refused))

    rows = desk.upload(b"a,y\n" + b"".join(b"0.5,yes\n-0.5,no\n" for _ in range(20)))
    desk.submissions = Submissions(
        desk.records, Slow(desk.folder / "files"), desk.folder / "code", checked_here
    )
    # When
    record = desk.submit("same", {"rows.csv": rows}, "rows.csv")
    # Then: the first one's offer is the one that members are shown
    assert len(refusals) == 1
    shown = Offer.parse(desk.submissions.public("same"))
    assert (shown.fingerprint, record.updates) == (record.fingerprint, 5)


def test_a_run_of_published_data_is_taken_where_the_host_has_it(desk: Desk) -> None:
    assert desk.submit("digits", data={"dataset": "digits"}).updates == 5
    with pytest.raises(Refused, match="mnist"):
        desk.submit("mnist", data={"dataset": "mnist"})


def test_every_file_that_a_run_names_is_known(desk: Desk) -> None:
    test = desk.upload(b"a,y\n1,no\n2,yes\n")
    spare = desk.upload(b"of no run")
    desk.submit("retina", at_host={"public.csv": test}, test="public.csv")
    assert desk.submissions.named() == {test}
    assert spare not in desk.submissions.named()


def test_a_full_disk_takes_no_offers(desk: Desk) -> None:
    full = FilePool(desk.folder / "files", reserve=1 << 62)
    desk.submissions = Submissions(desk.records, full, desk.folder / "code", checked_here)
    with pytest.raises(Refused) as refused:
        desk.submit("retina")
    assert refused.value.status == 507
    assert not (desk.folder / "runs" / "retina").exists()


def test_a_researcher_has_so_many_runs_that_are_not_over(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "OPEN", 2)
    for run in ("a", "b"):
        desk.submit(run)
    with pytest.raises(Refused, match="2 runs that are not over") as refused:
        desk.submit("c")
    assert refused.value.status == 409
    desk.records.change("a", state="stopped")
    assert desk.submit("c").name == "c"
