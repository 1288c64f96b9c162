"""The files of an attack report: our own form, SACRO-ML's, and a page for people."""

from __future__ import annotations

import shutil
from pathlib import Path

from tacit.errors import ConfigError
from tacit.shown import as_json
from tacit_services.attacking.attack_findings import AttackFindings
from tacit_services.evidence import attack_page, bundle

OWNERS = "attack-own-rows"  # the folder of a report that stays with the owner of the rows
_OWNERS_ALONE = 0o700


def write(findings: AttackFindings, results: Path) -> Path:
    """Write the report beside a run's results, in place of an earlier one. Returns its folder.

    Guarantee: a report on an owner's rows is in a folder of its own, which `tacit export` never
    reads, and which other users of the machine cannot read. Raises ConfigError.
    """
    private = findings.report.rows == "owner"
    folder = results / (OWNERS if private else bundle.ATTACK)
    draft = results / f".{folder.name}.new"
    contents = {
        bundle.REPORT: findings.report.model_dump_json(indent=1) + "\n",
        bundle.SACRO: as_json(findings.sacro()) + "\n",
        bundle.REPORT_PAGE: attack_page.page(findings.report),
    }
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=_OWNERS_ALONE if private else 0o777)
        for name, text in contents.items():
            (draft / name).write_text(text, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder
