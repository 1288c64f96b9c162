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
from tacit_services.member.consent import KeyStanding
from tacit_services.member.look_at_offer import record_of
from tacit_services.member.looking import Looked, look, with_rows
from tacit_services.member.member_state import Membership, MemberState
from tacit_services.member.offer_now import OfferNow, offer_now
from tacit_services.member.screen_text import ScreenSections, print_sections
from tacit_services.member.verdict import OfferVerdict, PolicyWord, RefusalKind

from tacit.config.site import Site
from tests.helpers.offered import COLUMNS, TABLE, federations_run, fetched, key, packed, table

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


def whole(
    folder: Path, seen: Looked, verdict: OfferVerdict = ASK, hours: str | None = None
) -> OfferNow:
    """Return all that a member's owner reads, whose state is in `folder`."""
    state = MemberState(folder / "state")
    state.keep(Membership("https://host:1", "edge-3", "St. Mary's", "mine.csv", "mine.csv"))
    record = record_of(seen, verdict, hours)
    return offer_now(state, folder / "home", seen.offer, record)


def text(sections: ScreenSections, width: int = 80) -> str:
    """Return a screen as a terminal of this width has it, without blanks at ends of lines."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=False, highlight=False)
    print_sections(sections, console)
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_screen_is_this(tmp_path: Path) -> None:
    more = {"ssn": ["123"] * 300, "name": ["Eve"] * 300}
    screen = whole(tmp_path, looked(tmp_path, {"rows": 320}, more)).sections
    assert text(screen) == EXPECTED.read_text(encoding="utf-8")


def test_the_screen_says_that_the_host_has_signed(tmp_path: Path) -> None:
    plain = looked(tmp_path)
    assert "signed by" not in text(whole(tmp_path, plain).sections)
    researcher = plain.offer.researcher.model_copy(update={"signed_by": "host"})
    offer = plain.offer.model_copy(update={"researcher": researcher})
    screen = whole(tmp_path, replace(plain, offer=offer)).sections
    assert re.search("signed by +the host, with its own key", text(screen))


def test_no_name_of_others_reaches_the_terminal(tmp_path: Path) -> None:
    # Given: a hostile column in the offer, and one in the file
    columns = COLUMNS | {"hostile": {"low": 0.0, "high": 1.0}}
    more = {HOSTILE: ["0.5"] * 300, "\u202edi": ["1"] * 300}
    # When
    renamed = {"hostile": HOSTILE}
    seen = looked(tmp_path, None, more, renamed, data=TABLE | {"columns": columns})
    shown = text(whole(tmp_path, seen).sections)
    # Then
    assert all(letter.isprintable() or letter == "\n" for letter in shown)
    assert "gnp.exe" in shown
    assert max(map(len, shown.split("\n"))) <= 80


def test_long_names_and_many_columns_fit_eighty_columns(tmp_path: Path) -> None:
    names = {f"x{number}y": f"{number}-{'very ' * 20}long" for number in range(200)}
    columns = COLUMNS | {name: {"low": 0.0, "high": 1.0} for name in names}
    more = {name: ["0.5"] * 300 for name in names.values()}
    seen = looked(tmp_path, None, more, names, data=TABLE | {"columns": columns})
    screen = whole(tmp_path, seen).sections
    assert max(map(len, text(screen).split("\n"))) <= 80
    assert "and 173 more" in text(screen)


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
    shown = text(whole(tmp_path, looked(tmp_path, privacy=privacy)).sections)
    assert "NONE" in shown
    assert "NO NOISE" in shown


def test_another_key_and_an_earlier_answer_are_said(tmp_path: Path) -> None:
    seen = looked(tmp_path)
    mallory = key(seen.offer.researcher.name, seed=7)
    other = seen.offer.model_copy(update={"researcher": mallory.public(), "file": {}})
    state = MemberState(tmp_path / "state")
    with state.answering() as consents:
        consents.record(mallory.signed(other), "accepted")
    shown = " ".join(text(whole(tmp_path, seen).sections).split())
    assert "ANOTHER KEY" in shown
    assert "Another offer of this run was accepted" in shown


def test_the_hours_of_the_policy_are_said(tmp_path: Path) -> None:
    screen = whole(tmp_path, looked(tmp_path), hours="20:00-06:00").sections
    assert "between 20:00-06:00 alone, local time" in " ".join(text(screen).split())


def test_what_the_unit_leaves_out_is_said(tmp_path: Path) -> None:
    # Given: rows, some of which are of one person, and the same for the person
    row = " ".join(text(whole(tmp_path, looked(tmp_path)).sections).split())
    assert "A person with two rows is protected less" in row
    assert "data.unit" in row
    (tmp_path / "people").mkdir()
    more = {"ssn": [f"{number // 2}" for number in range(300)]}
    seen = looked(tmp_path / "people", None, more, data=TABLE | {"unit": "ssn", "unit_rows": 2})
    person = " ".join(text(whole(tmp_path / "people", seen).sections).split())
    assert "two rows" not in person
    assert "all rows with the same ssn together" in person
