"""What an owner reads before anything of the rows is used. `screen.txt` is the screen, at 80 columns."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tacit_services.display.progress import SlowSteps
from tacit_services.member.consent import Consents, KeyStanding
from tacit_services.member.looking import Looked, look, with_rows
from tacit_services.member.run_promise import RunPromise
from tacit_services.member.screen import Screen
from tacit_services.member.screen_text import print_sections
from tacit_services.member.verdict import OfferVerdict, PolicyWord, RefusalKind

from tacit import rounding
from tacit.config.site import Site
from tacit.privacy.accounting import Lifetime, Spend, epsilon_pld
from tests.helpers.offered import COLUMNS, TABLE, federations_run, fetched, packed, table

EXPECTED = Path(__file__).parent / "screen.txt"
HOSTILE = "\x1b[2J\u202egnp.exe"
ASK = OfferVerdict(PolicyWord.ASK)


def looked(
    folder: Path,
    site: dict[str, Any] | None = None,
    more: dict[str, list[str]] | None = None,
    renamed: dict[str, str] | None = None,
    **sections: Any,
) -> Looked:
    """Return what a member knows of an offer, whose rows are in `mine.csv` of the folder.

    more: columns of it that are not the usual. renamed: columns of the run file.
    """
    run = federations_run(**sections)
    for name, other in (renamed or {}).items():
        run = run.replace(name, json.dumps(other))
    researcher = folder / "researcher"
    researcher.mkdir()
    offer = packed(researcher, run)
    place = fetched(offer, folder / "member")
    table(folder / "mine.csv", 300, 5, **(more or {}))
    seen = look(offer.offer, place, Site(3, Path("mine.csv"), **(site or {})), KeyStanding.NEW)
    return with_rows(seen, folder / "home", SlowSteps())


def text(screen: Screen, width: int = 80) -> str:
    """Return the screen as a terminal of this width has it, without blanks at ends of lines."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=False, highlight=False)
    print_sections(screen.sections(), console)
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_screen_is_this(tmp_path: Path) -> None:
    more = {"ssn": ["123"] * 300, "name": ["Eve"] * 300}
    screen = Screen(looked(tmp_path, {"rows": 320}, more), ASK)
    assert text(screen) == EXPECTED.read_text(encoding="utf-8")


def test_the_screen_says_that_the_host_has_signed(tmp_path: Path) -> None:
    plain = looked(tmp_path)
    assert "signed by" not in text(Screen(plain, ASK))
    researcher = plain.offer.researcher.model_copy(update={"signed_by": "host"})
    offer = plain.offer.model_copy(update={"researcher": researcher})
    screen = Screen(replace(plain, offer=offer), ASK)
    assert re.search("signed by +the host, with its own key", text(screen))
    assert screen.document()["researcher"]["signed_by"] == "host"


def test_no_name_of_others_reaches_the_terminal(tmp_path: Path) -> None:
    # Given: a hostile column in the offer, and one in the file
    columns = COLUMNS | {"hostile": {"low": 0.0, "high": 1.0}}
    more = {HOSTILE: ["0.5"] * 300, "\u202edi": ["1"] * 300}
    # When
    renamed = {"hostile": HOSTILE}
    seen = looked(tmp_path, None, more, renamed, data=TABLE | {"columns": columns})
    shown = text(Screen(seen, ASK))
    # Then
    assert all(letter.isprintable() or letter == "\n" for letter in shown)
    assert "gnp.exe" in shown
    assert max(map(len, shown.split("\n"))) <= 80


def test_long_names_and_many_columns_fit_eighty_columns(tmp_path: Path) -> None:
    names = {f"x{number}y": f"{number}-{'very ' * 20}long" for number in range(200)}
    columns = COLUMNS | {name: {"low": 0.0, "high": 1.0} for name in names}
    more = {name: ["0.5"] * 300 for name in names.values()}
    seen = looked(tmp_path, None, more, names, data=TABLE | {"columns": columns})
    screen = Screen(seen, ASK)
    assert max(map(len, text(screen).split("\n"))) <= 80
    assert "and 173 more" in text(screen)
    assert set(screen.document()["columns"]["read"]) == {*COLUMNS, *names.values()}


def test_a_missing_column_is_told_to_the_host_by_its_kind_alone(tmp_path: Path) -> None:
    columns = COLUMNS | {"weight": {"low": 0.0, "high": 1.0}}
    seen = looked(tmp_path, data=TABLE | {"columns": columns})
    assert seen.trouble is not None
    assert seen.trouble.kind is RefusalKind.COLUMNS
    assert "weight" in seen.trouble.words


@pytest.mark.parametrize("rows", [60, 290])
def test_how_many_rows_there_are_is_told_to_the_owner_alone(tmp_path: Path, rows: int) -> None:
    seen = looked(tmp_path, {"rows": rows})
    if rows == 290:
        assert seen.trouble is None
        return
    assert seen.trouble is not None
    assert seen.trouble.kind is RefusalKind.UNAVAILABLE  # 300 rows are more than 60 and a margin


def test_rows_of_another_schema_are_the_owners_alone_to_know(tmp_path: Path) -> None:
    columns = COLUMNS | {"age": {"low": 5000.0, "high": 5001.0}}
    seen = looked(tmp_path, data=TABLE | {"columns": columns})
    assert seen.trouble is not None
    assert seen.trouble.kind is RefusalKind.UNAVAILABLE
    assert "age" in seen.trouble.words


def test_nothing_is_charged_or_kept_by_looking(tmp_path: Path) -> None:
    looked(tmp_path)
    assert not list((tmp_path / "home").rglob("*.db"))


def test_a_run_without_noise_is_said_to_promise_nothing(tmp_path: Path) -> None:
    privacy = {"mechanism": "none", "noise_multiplier": None}
    shown = text(Screen(looked(tmp_path, privacy=privacy), ASK))
    assert "NONE" in shown
    assert "NO NOISE" in shown


def test_another_key_and_an_earlier_answer_are_said(tmp_path: Path) -> None:
    seen = looked(tmp_path)
    earlier = Consents(tmp_path / "consents.json").record(seen.offer, "accepted")
    screen = Screen(replace(seen, standing=KeyStanding.OTHER_KEY), ASK, earlier)
    assert "ANOTHER KEY" in text(screen)
    assert "Another offer of this run was accepted" in " ".join(text(screen).split())


def test_what_is_promised_to_other_runs_is_said_and_counted(tmp_path: Path) -> None:
    # Given: an accepted run that has made 40 of 100 releases
    promise = RunPromise(0.05, 1.2, "gaussian", 100, 2.0, 1e-5)
    left = promise.left((Spend(0.05, 1.2, 40),))
    assert left == Spend(0.05, 1.2, 60)
    known = looked(tmp_path)
    lifetime = Lifetime.begun(4.0, 1e-5)
    # When
    alone, seen = (
        with_rows(known, tmp_path / "home", SlowSteps(), lifetime, others)
        for others in ({}, {"lungs": left})
    )
    # Then
    assert alone.cost is not None
    assert seen.cost is not None
    assert seen.cost.after > alone.cost.after
    assert seen.cost.releases == alone.cost.releases
    assert seen.cost.lifetime is not None
    assert seen.cost.lifetime.after == 1.0
    shown = " ".join(text(Screen(seen, ASK)).split())
    promised = rounding.epsilon(epsilon_pld((left,), 1e-5))
    assert f"promised another ε {promised} to lungs, if it goes on to its end" in shown
    assert "after, with what is promised" in shown
    assert Screen(seen, ASK).document()["spending"]["promised"] == dict(seen.cost.promised)


def test_the_hours_of_the_policy_are_said(tmp_path: Path) -> None:
    screen = Screen(looked(tmp_path), ASK, hours="20:00-06:00")
    assert "between 20:00-06:00 alone, local time" in " ".join(text(screen).split())
    assert screen.document()["hours"] == "20:00-06:00"


def test_json_says_what_the_screen_says(tmp_path: Path) -> None:
    screen = Screen(
        looked(tmp_path, {"rows": 320}), OfferVerdict(PolicyWord.REFUSE, RefusalKind.POLICY, "no")
    )
    document = screen.document()
    assert document["columns"]["read"] == ("dose", "age", "ill")
    assert document["model"]["parameters"] == 6
    assert document["spending"]["epsilon"] > document["spending"]["fixed_in_advance"]["before"]
    assert document["verdict"] == {"answer": "refuse", "kind": "policy", "reason": "no"}
