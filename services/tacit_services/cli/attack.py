"""`tacit attack`: attacks on a trained model, beside the bound that ε and δ imply."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.errors import ConfigError
from tacit_services.cli.data_folder import DataFolder, data_folder
from tacit_services.cli.options import AsJson
from tacit_services.cli.owners import owners_screen
from tacit_services.cli.predict import TrustCode
from tacit_services.cli.say import say
from tacit_services.extras import need

if TYPE_CHECKING:
    from tacit_services.attacking.attack_findings import AttackedModel, AttackFindings
    from tacit_services.attacking.public_attack import ShadowPlan


@owners_screen()
def attack(
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="folder of a run's results; with --federation, the run's name; with --members, "
            "also a folder of `tacit export`",
            show_default=False,
        ),
    ],
    public: Annotated[
        Path | None,
        typer.Option(
            help="of own data: PUBLIC rows in the form of the private ones [default: data.test]"
        ),
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option(help="of own data: answers.json of `tacit ask`; rows are made up of them"),
    ] = None,
    shadows: Annotated[
        int, typer.Option(min=0, max=10_000, help="shadow runs; 0: only attacks that need none")
    ] = 20,
    members: Annotated[
        Path | None,
        typer.Option(help="at the owner: own rows that the model was trained on; with --others"),
    ] = None,
    others: Annotated[
        Path | None, typer.Option(help="at the owner: own rows that the model was not trained on")
    ] = None,
    which: Annotated[str, typer.Option(help="last, averaged or best, as for export")] = "last",
    code: Annotated[
        Path | None, typer.Option(help="folder of your own module [default: the run file's]")
    ] = None,
    federation: Annotated[
        Path | None,
        typer.Option(envvar="TACIT_FEDERATION", help="at a federation's host: its folder"),
    ] = None,
    trust_code: TrustCode = False,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Attack a trained model: who was in its training, and what the columns of a row give away.

    The report is written beside the results, and `tacit export --evidence` takes it along. A report
    on an owner's rows (--members, --others) stays in a folder of its own.
    """
    need("figures")
    from tacit_services.attacking import report_files

    if federation is not None and not out.exists():
        from tacit_services.offers.submission import FILES

        place = federation / "runs" / out
        out, code = place / "out", code or place / FILES
    if (members is None) != (others is None):
        raise ConfigError("--members, --others: give both, or none")
    if members is not None and others is not None:
        findings = _owners(out, code, which, members, others, trust_code=trust_code)
    else:
        findings = _public(out, code, which, public, answers, data_folder(data), shadows)
    folder = report_files.write(findings, out)
    if as_json:
        typer.echo(findings.report.model_dump_json(indent=2))
    else:
        _show(findings, folder)


def _owners(
    out: Path, code: Path | None, which: str, members: Path, others: Path, *, trust_code: bool
) -> AttackFindings:
    from tacit import exported
    from tacit_services.attacking import attacked_models
    from tacit_services.attacking.owners_attack import with_owners_rows

    if exported.is_exported(out):
        attacked = attacked_models.of_folder(out, trust_code=trust_code)
    else:
        attacked, _ = attacked_models.of_results(out, code, which)
    return with_owners_rows(attacked, members, others)


def _public(
    out: Path, code: Path | None, which: str, public: Path | None, answers: Path | None,
    root: Path | None, shadows: int,
) -> AttackFindings:  # fmt: skip
    from tacit_services.attacking import attacked_models, public_attack
    from tacit_services.attacking.public_attack import ShadowPlan
    from tacit_services.display.progress import TimeLeft

    attacked, updates = attacked_models.of_results(out, code, which)
    remaining = TimeLeft()

    def progress(finished: int) -> None:
        say(f"shadow run {finished}/{shadows}{remaining.after(finished, shadows)}", err=True)

    plan = ShadowPlan(shadows, max(1, min(updates, attacked.run.run.updates)), progress=progress)
    if attacked.run.data.kind != "benchmark":
        return _stand_in(attacked, public, answers, plan)
    if public is not None or answers is not None:
        raise ConfigError(
            "--public, --answers: are for a run on own data; the rows of published data are public"
        )
    return public_attack.with_published(attacked, root, plan)


def _stand_in(
    attacked: AttackedModel, public: Path | None, answers: Path | None, plan: ShadowPlan
) -> AttackFindings:
    """Attack with rows in the form of private ones."""
    need("tune")
    from tacit.config.own_data import OwnData
    from tacit_services.attacking.dealt_rows import StandInRows
    from tacit_services.attacking.public_attack import with_stand_in
    from tacit_services.project.public_rows import public_rows, rows_of_answers
    from tacit_services.settings import data_home

    run = attacked.run
    assert isinstance(run.data, OwnData)
    if public is not None and answers is not None:
        raise ConfigError("--public, --answers: name one of them, whose rows are attacked")
    if answers is not None:
        rows = rows_of_answers(run, answers, run.run.seed)
        return with_stand_in(attacked, StandInRows.of(run.data, rows), "synthetic", plan)
    if public is None and run.data.test is not None:
        public = run.folder / run.data.test
    if public is None:
        raise ConfigError(
            "--public: the run has no public test set; name public rows, or --answers to make some "
            "up, or at the owner --members and --others"
        )
    rows = public_rows(run, str(public), None, data_home())
    return with_stand_in(attacked, StandInRows.of(run.data, rows), "public", plan)


def _show(findings: AttackFindings, folder: Path) -> None:
    from tacit_services.evidence import attack_page

    for each in findings.report.attacks:
        auc, first = each.auc, each.rates[0]
        say(
            f"{each.name}: AUC {auc.value:.3f} ({auc.low:.3f} to {auc.high:.3f}); hits at "
            f"{first.rate:.1%} false alarms {first.share.value:.2%} ({first.share.low:.2%} to "
            f"{first.share.high:.2%})"
        )
    for column in findings.report.attributes:
        members, others = column.members.value, column.others.value
        say(f"column {column.column}: guessed of {members:.1%} of members, {others:.1%} of others")
    say(attack_page.verdict(findings.report))
    say(f"{folder}/: report.json, sacro.json, report.html")
    if findings.report.rows == "owner":
        say("it is of your own rows: it stays here, and no export takes it along")
    else:
        say("next: tacit export BUNDLE --run OUT --evidence, which takes it along")
