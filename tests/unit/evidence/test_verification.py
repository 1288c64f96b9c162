"""What a true bundle proves, by itself and with anchors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tacit_services.cli.main import main
from tacit_services.enrollment import certificates
from tacit_services.evidence import bundle

from tests.helpers.evidence import PastRun, past_run, put, signed_anew, verdict_of


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> PastRun:
    """A run of two edges, and its bundle beside it: `bundle` and `bundle.zip`."""
    run = past_run(tmp_path_factory.mktemp("evidence") / "run")
    run.bundle(run.results.parent / "bundle")
    return run


def folder_of(run: PastRun) -> Path:
    return run.results.parent / "bundle"


def proven(root: Path, run: PastRun | None = None) -> set[str]:
    verdict = verdict_of(root, None if run is None else run.anchors())
    assert verdict.ok, verdict.text()
    return {finding.code for finding in verdict.findings if finding.kind == "proven"}


def test_folder_and_zip_prove_the_same_and_the_fold_is_among_it(run: PastRun) -> None:
    folder = folder_of(run)
    assert proven(folder) == proven(folder.with_suffix(".zip"))
    assert {"files", "chain", "epsilon", "cover", "definition", "model", "fold"} <= proven(folder)


def test_without_anchors_who_the_edges_are_is_the_hosts_word_alone(run: PastRun) -> None:
    stated = [each for each in verdict_of(folder_of(run)).findings if each.code == "identities"]
    assert [finding.by for finding in stated] == ["the host alone"]
    with_anchors = proven(folder_of(run), run)
    assert {"anchor", "authority"} <= with_anchors


def test_a_journal_that_stays_with_its_host_is_said_to_be_missing(
    run: PastRun, tmp_path: Path
) -> None:
    run.bundle(tmp_path / "chain", with_journal=False)
    run.bundle(tmp_path / "nothing", journal=None)
    for name, covers in (("chain", True), ("nothing", False)):
        verdict = verdict_of(tmp_path / name)
        assert verdict.ok, verdict.text()
        codes = {finding.code for finding in verdict.findings if finding.kind == "proven"}
        assert ("cover" in codes, "fold" in codes) == (covers, False)
        assert "journal" in {each.code for each in verdict.findings if each.kind == "missing"}


def test_two_bundles_of_one_folder_are_one_zip(run: PastRun, tmp_path: Path) -> None:
    shutil.copytree(folder_of(run), tmp_path / "copy")
    from tacit_services.evidence.bundle_files import write_zip

    write_zip(tmp_path / "copy", tmp_path / "copy.zip")
    assert (tmp_path / "copy.zip").read_bytes() == folder_of(run).with_suffix(".zip").read_bytes()


def test_the_command_ends_with_0_or_with_5_and_each_reason(
    run: PastRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given a bundle, and the anchors of its owners in files,
    anchor = tmp_path / "anchors"
    lines = [f"{edge} sha256:{signed.key}" for edge, signed in run.statements.items()]
    lines.append(f"authority {certificates.fingerprint(run.authority.certificate)}")
    anchor.write_text("\n".join(lines), encoding="utf-8")
    pem = tmp_path / "authority.pem"
    pem.write_bytes(certificates.pem(run.authority.certificate))
    arguments = ["verify", str(folder_of(run)), "--anchor", str(anchor), "--anchor", str(pem)]
    with pytest.raises(SystemExit) as exited:
        main([*arguments, "--json"])
    content = json.loads(capsys.readouterr().out)
    assert (exited.value.code, content["ok"], content["format"]) == (0, True, 1)
    # when the host leaves an edge's statement out, then the exit code is 5, and it says why.
    shutil.copytree(folder_of(run), tmp_path / "other")
    (tmp_path / "other" / bundle.statement_of("edge-1")).unlink()
    signed_anew(tmp_path / "other", run.authority)
    with pytest.raises(SystemExit) as exited:
        main(["verify", str(tmp_path / "other")])
    out = capsys.readouterr().out
    assert exited.value.code == 5
    assert "edge-1: 3 accepted updates are covered by no statement" in out


def test_a_file_that_is_no_bundle_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, "other.txt", b"no bundle")
    for root in (tmp_path / "other.txt", tmp_path / "none"):
        with pytest.raises(SystemExit) as exited:
            main(["verify", str(root)])
        assert exited.value.code == 3
        assert len(capsys.readouterr().err.splitlines()) == 1
