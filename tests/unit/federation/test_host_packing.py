"""What is uploaded by the host's page is data: it is packed and signed here, and never executed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tacit_services.children.child_limits import ChildLimits
from tacit_services.federation.host_packing import AT_ONCE, HostPacking, RunFileUpload
from tacit_services.federation.people import Person, Right
from tacit_services.federation.submissions import Refused
from tacit_services.offers.offer import Offer

from tests.helpers.federation import run_text
from tests.unit.federation.test_submissions import ADA, Desk

BOB = Person("bob", Right.RESEARCHER, since=0.0)
EVE = Person("eve", Right.READER, since=0.0)
TEXT = run_text(updates=5, epsilon=2.0, count=1)
TESTED = TEXT.replace("rows = 400", 'rows = 400\ntest = "public.csv"')
ROWS = b"a,b,y\n" + b"".join(b"0.5,1,yes\n-0.5,-1,no\n" for _ in range(20))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def packing(desk: Desk) -> HostPacking:
    return packing_of(desk)


def packing_of(desk: Desk) -> HostPacking:
    return HostPacking(desk.folder / "packing", desk.pool, desk.folder / "page.pem")


def refusal(act: Callable[[], object]) -> Refused:
    """Return the refusal that `act` ends with."""
    with pytest.raises(Refused) as refused:
        act()
    return refused.value


def test_a_run_is_packed_in_the_name_of_who_uploads_it_and_signed_by_the_host(
    desk: Desk, packing: HostPacking
) -> None:
    digest = desk.upload(ROWS)
    upload = RunFileUpload(text=TESTED, files={"public.csv": digest}, name="retina")
    submission = packing.packed(upload, ADA)
    offer = Offer.parse(submission.offer.encode())
    assert (offer.run, offer.researcher.name, offer.researcher.signed_by) == (
        "retina",
        "ada",
        "host",
    )
    assert (submission.at_host, submission.test) == ({"public.csv": digest}, "public.csv")
    record = desk.submissions.taken(submission.model_dump(), ADA, "host")
    assert (record.researcher, record.fingerprint) == ("ada", offer.fingerprint)
    # The key is one, whoever asks, also after a restart; it is for the host alone.
    again = packing_of(desk).packed(RunFileUpload(text=TEXT), BOB)
    assert Offer.parse(again.offer.encode()).researcher.key == offer.researcher.key
    assert (desk.folder / "page.pem").stat().st_mode & 0o777 == 0o600
    assert list((desk.folder / "packing").iterdir()) == []


def test_an_uploaded_offer_cannot_say_that_the_host_has_signed_it(
    desk: Desk, packing: HostPacking
) -> None:
    submission = packing.packed(RunFileUpload(text=TEXT), ADA)
    refused = refusal(lambda: desk.submissions.taken(submission.model_dump(), ADA))
    assert (refused.status, "signed_by" in str(refused)) == (422, True)


def test_all_that_is_wrong_with_a_run_file_is_said_at_once(packing: HostPacking) -> None:
    text = TEXT.replace("epsilon = 2.0", "epsilon = -2.0").replace("count", "cuont")
    refused = refusal(lambda: packing.packed(RunFileUpload(text=text), ADA))
    assert refused.status == 422
    assert len(refused.faults) == 2
    assert any(fault.startswith("privacy.epsilon=-2.0") for fault in refused.faults)
    assert any("did you mean count?" in fault for fault in refused.faults)


def test_a_file_that_was_not_uploaded_is_named_and_no_folder_of_the_hosts_is(
    desk: Desk, packing: HostPacking
) -> None:
    refused = refusal(lambda: packing.packed(RunFileUpload(text=TESTED), ADA))
    assert refused.faults == ("data.test='public.csv': no such file in what was uploaded",)
    upload = RunFileUpload(text=TEXT, files={"a.csv": "0" * 64, "../b.csv": desk.upload(ROWS)})
    refused = refusal(lambda: packing.packed(upload, ADA))
    assert [fault.partition(":")[0] for fault in refused.faults] == [
        "file a.csv",
        "file '../b.csv'",
    ]
    assert str(desk.folder) not in str(refused)


@pytest.mark.parametrize("name", ["planted.py", "planted.PY", "planted/__init__.py", "planted.so"])
def test_code_is_not_taken_and_not_run(desk: Desk, packing: HostPacking, name: str) -> None:
    trace = desk.folder / "trace"
    code = desk.upload(f"open({str(trace)!r}, 'w')\n".encode())
    text = TEXT + '\n[evaluation]\nmetrics = ["planted:score"]\n'
    upload = RunFileUpload(text=text, files={name: code})
    assert "is code" in str(refusal(lambda: packing.packed(upload, ADA)))
    # Nor does a name that Python does not import become a module.
    upload = RunFileUpload(text=text, files={"planted.txt": code})
    assert "is code" in str(refusal(lambda: packing.packed(upload, ADA)))
    assert not trace.exists()
    assert "planted" not in sys.modules


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a")])
def test_a_file_that_is_a_folder_too_is_refused(
    desk: Desk, packing: HostPacking, names: tuple[str, str]
) -> None:
    upload = RunFileUpload(text=TEXT, files=dict.fromkeys(names, desk.upload(ROWS)))
    assert "both a file and a folder" in str(refusal(lambda: packing.packed(upload, ADA)))


def test_readers_upload_no_run(packing: HostPacking) -> None:
    assert refusal(lambda: packing.packed(RunFileUpload(text=TEXT), EVE)).status == 403


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux alone")
@pytest.mark.parametrize(
    ("limits", "fault"),
    [
        (ChildLimits(memory=1 << 27, seconds=60.0), "takes more than 0.1 GiB of memory"),
        (ChildLimits(memory=1 << 33, seconds=0.0), "takes more than 0 s"),
    ],
)
def test_a_run_file_that_takes_too_much_is_refused_and_the_host_takes_others(
    desk: Desk, limits: ChildLimits, fault: str
) -> None:
    packing = HostPacking(desk.folder / "packing", desk.pool, desk.folder / "page.pem", limits)
    refused = refusal(lambda: packing.packed(RunFileUpload(text=TEXT), ADA))
    assert (refused.status, len(refused.faults)) == (422, 1)
    assert refused.faults[0].startswith(f"the run file {fault}")
    assert list((desk.folder / "packing").iterdir()) == []
    assert packing_of(desk).packed(RunFileUpload(text=TEXT), ADA)


def test_a_key_of_many_parts_costs_no_memory(packing: HostPacking) -> None:
    upload = RunFileUpload(text="a" + ".a" * 50_000 + "=1")
    (fault,) = refusal(lambda: packing.packed(upload, ADA)).faults
    assert fault.startswith("run file: line 1: a key of more than 16 parts")


def test_of_many_faults_the_first_are_said(packing: HostPacking) -> None:
    text = TEXT + "".join(f"wrong{number} = 1\n" for number in range(120))
    faults = refusal(lambda: packing.packed(RunFileUpload(text=text), ADA)).faults
    assert (len(faults), faults[-1]) == (101, "and 20 more")


def test_whoever_packs_holds_nobody_else_up(packing: HostPacking) -> None:
    upload = RunFileUpload(text=TEXT)
    with packing._place(ADA):
        refused = refusal(lambda: packing.packed(upload, ADA))
        assert (refused.status, "of yours" in str(refused)) == (429, True)
        assert packing.packed(upload, BOB)
        with ExitStack() as others:
            for number in range(1, AT_ONCE):
                other = Person(f"other-{number}", Right.RESEARCHER, since=0.0)
                others.enter_context(packing._place(other))
            assert refusal(lambda: packing.packed(upload, BOB)).status == 429
    assert packing.packed(upload, ADA)
