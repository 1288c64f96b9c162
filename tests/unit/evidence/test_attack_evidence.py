"""An attack report in a bundle: what of it is proven, and which forgeries are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tacit_services.cli.main import main
from tacit_services.evidence import attack_page, bundle

from tacit.attacks.attack_report import read_report
from tacit.errors import ConfigError
from tests.helpers.evidence import PastRun, past_run, put, signed_anew, verdict_of

REPORT = bundle.in_attack(bundle.REPORT)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> PastRun:
    """A run whose model was attacked, and its bundle beside it."""
    run = past_run(tmp_path_factory.mktemp("attacked") / "run")
    with pytest.raises(SystemExit) as exited:
        main(["attack", str(run.results), "--code", str(run.results), "--shadows", "0"])
    assert exited.value.code == 0
    run.bundle(run.results.parent / "bundle", journal=None)
    return run


def codes(root: Path) -> dict[str, set[str]]:
    seen: dict[str, set[str]] = {}
    for each in verdict_of(root).findings:
        seen.setdefault(each.kind, set()).add(each.code)
    return seen


def test_a_report_on_published_rows_goes_in_and_its_bound_is_proven(run: PastRun) -> None:
    folder = run.results.parent / "bundle"
    verdict = verdict_of(folder)
    assert verdict.ok, verdict.text()
    by = {each.by for each in verdict.findings if each.code == "attacks" and each.by}
    assert by == {"the host"}
    assert "attacks" in codes(folder)["proven"]
    # The report is of this run's members: 1,437 rows dealt to two edges, against 360 others.
    report = read_report((folder / REPORT).read_bytes(), REPORT)
    assert (report.rows, report.trained, report.unit) == ("public", "this model", "record")
    assert (report.members, report.others) == (1437, 360)
    assert (
        report.model_sha256
        == json.loads((run.results / "summary.json").read_text())["model_sha256"]
    )
    # What it found stands on the printed page, too.
    assert "What attacks found" in (folder / bundle.PAGE).read_text(encoding="utf-8")


def test_a_bundle_without_a_report_is_as_before_and_lacks_it(run: PastRun, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(run.results, results, ignore=shutil.ignore_patterns(bundle.ATTACK))
    run.bundle(tmp_path / "bundle", results=results, code=results, journal=None)
    seen = codes(tmp_path / "bundle")
    assert "attacks" in seen["missing"]
    assert "refused" not in seen
    page = (tmp_path / "bundle" / bundle.PAGE).read_text(encoding="utf-8")
    assert "What attacks found" not in page


def test_sacros_form_has_its_keys_and_the_reports_figures(run: PastRun) -> None:
    folder = run.results / bundle.ATTACK
    report = read_report((folder / bundle.REPORT).read_bytes(), "report")
    document = json.loads((folder / bundle.SACRO).read_text(encoding="utf-8"))
    for figures, (name, entry) in zip(report.attacks, document.items(), strict=True):
        assert name == f"{entry['metadata']['attack_name']}_{entry['log_id']}"
        metrics = entry["attack_experiment_logger"]["attack_instance_logger"]["instance_0"]
        assert metrics["AUC"] == pytest.approx(figures.auc.value)
        assert {"TPR", "FPR", "Advantage", "P_HIGHER_AUC", "PDIF01", "TPR@0.1%"} <= metrics.keys()


Changed = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda r: r.update(model_sha256="0" * 64), id="another model"),
        pytest.param(lambda r: r.update(which="best"), id="another of the run's models"),
        pytest.param(lambda r: r.update(epsilon=500.0, trained_epsilon=500.0), id="a larger ε"),
        pytest.param(lambda r: r.update(rows="owner"), id="an owner's rows"),
        pytest.param(lambda r: r["bounds"].update(auc=0.51), id="another bound"),
        pytest.param(lambda r: r["attacks"][0].update(beyond=True), id="another finding"),
        pytest.param(lambda r: r["attacks"][0]["auc"].update(value=0.5), id="another figure"),
        pytest.param(lambda r: r["attacks"].pop(), id="an attack less"),
        pytest.param(lambda r: r.update(more=1), id="an unknown key"),
    ],
)
def test_a_host_that_signs_a_changed_report_is_refused(
    run: PastRun, tmp_path: Path, change: Changed
) -> None:
    # Given a bundle whose report was changed, with a page that fits where one can be made,
    folder = tmp_path / "bundle"
    shutil.copytree(run.results.parent / "bundle", folder)
    content = json.loads((folder / REPORT).read_bytes())
    change(content)
    put(folder, REPORT, json.dumps(content).encode())
    if "more" not in content:
        page = attack_page.page(read_report((folder / REPORT).read_bytes(), REPORT))
        put(folder, bundle.in_attack(bundle.REPORT_PAGE), page.encode())
    # when the host signs it anew, then the report is refused.
    signed_anew(folder, run.authority)
    assert "attacks" in codes(folder)["refused"]


def test_a_missing_page_or_another_file_is_refused(run: PastRun, tmp_path: Path) -> None:
    for name, content in ((bundle.REPORT_PAGE, b"all is well"), ("more.json", b"{}")):
        folder = tmp_path / name
        shutil.copytree(run.results.parent / "bundle", folder)
        put(folder, bundle.in_attack(name), content)
        signed_anew(folder, run.authority)
        assert "attacks" in codes(folder)["refused"]


def test_a_report_on_an_owners_rows_or_another_model_never_goes_in(
    run: PastRun, tmp_path: Path
) -> None:
    for change, words in (({"rows": "owner"}, "stay with the owner"), ({"which": "best"}, "again")):
        results = tmp_path / words
        shutil.copytree(run.results, results)
        path = results / bundle.ATTACK / bundle.REPORT
        path.write_text(json.dumps(json.loads(path.read_bytes()) | change), encoding="utf-8")
        with pytest.raises(ConfigError, match=words):
            run.bundle(tmp_path / "bundle", results=results, code=results, journal=None)
        assert not (tmp_path / "bundle").exists()
