"""`tacit new` says what it found and guessed, and refuses a bad guess with what to say instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from tacit_services.cli.main import main

from tacit import config
from tacit.config.own_table import TableData


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return tmp_path


def sample(last: str = "verlegt", cells: tuple[str, ...] = ("ja", "nein"), shift: int = 0) -> Path:
    lines = [f"Patienten_ID;Alter;Größe;Notiz;{last}"]
    for number in range(120):
        age = "-9" if number % 40 == 7 else str(20 + (number * 7 + shift) % 60)
        size = f"{150 + (number * 13 + shift) % 47},{number % 10}"
        lines.append(f"{number // 2};{age};{size};Text {number};{cells[number % len(cells)]}")
    Path("public.csv").write_text("\r\n".join(lines) + "\r\n", encoding="cp1252")
    return Path("public.csv")


def new(capsys: pytest.CaptureFixture[str], *more: str, name: str = "klinik") -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["new", name, "--table", "public.csv", *more])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out + captured.err


def test_what_is_found_and_guessed_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    sample()
    code, said = new(capsys)
    assert code == 0
    assert "learns: verlegt, one of ja, nein (the last column; for another: --target)" in said
    assert "cells are parted by ';' (data.separator)" in said
    assert "read as cp1252" in said
    assert "decimal mark ','" in said
    assert "taken for no value (missing_codes): Alter -9" in said
    assert "not read: Notiz;" in said
    stated = new(capsys, "--target", "Größe", name="other")[1]
    assert "learns: Größe, a number\n" in stated


def test_a_wrong_separator_or_decimal_mark_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    sample()
    for wrong in (",", "\t", "|"):
        code, said = new(capsys, "--separator", wrong)
        assert code == 3
        assert f"--separator {wrong!r} gives one column, and ';' gives 5" in said
    code, said = new(capsys, "--decimal", ".")
    assert code == 0
    assert "--decimal '.': with ',', 1 more columns would be of numbers" in said


@pytest.mark.parametrize(
    ("last", "cells", "why"),
    [
        ("Fall_ID", tuple(str(1000 + 7 * number) for number in range(120)), "looks like an id"),
        ("lfd", tuple(map(str, range(1, 121))), "numbers the rows"),
        ("Befund", tuple(f"Text {number}" for number in range(90)), "has 90 different values"),
        ("Aufnahme", tuple(f"2020-01-{day:02}" for day in range(1, 29)), "is a date"),
    ],
)
def test_a_last_column_that_is_no_target_is_refused(
    capsys: pytest.CaptureFixture[str], last: str, cells: tuple[str, ...], why: str
) -> None:
    sample(last, cells)
    code, said = new(capsys)
    assert code == 2
    assert f"--target: the last column, {last}, {why}" in said
    assert "name the column that is learnt" in said
    assert not Path("klinik").exists()


def test_sites_with_units_have_all_that_check_needs(capsys: pytest.CaptureFixture[str]) -> None:
    private = sample()
    code, said = new(capsys, "--sites", "2", "--unit", "Patienten_ID")
    assert code == 0
    assert "write how many rows a site has into klinik/run.toml: rows and unit_rows" in said
    head, *lines = private.read_text(encoding="cp1252").splitlines()
    for site in range(2):
        rows = [f"{site}{line}" for line in lines * 2]
        text = "\r\n".join([head, *rows]) + "\r\n"
        Path(f"klinik/site{site}.csv").write_text(text, encoding="cp1252")
    run = config.load(Path("klinik/run.toml"))
    assert isinstance(run.data, TableData)
    assert (run.data.rows, run.data.unit_rows) == (5000, 2)
    with pytest.raises(SystemExit) as ended:
        main(["check", "klinik/run.toml"])
    out = capsys.readouterr().out
    assert not ended.value.code, out
    assert "note: data.rows = 5,000 is 83 times what an edge has here" in out
    assert "as data.rows = 60, which becomes public" in out


def test_a_folder_that_is_there_is_left_and_the_way_on_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sample()
    assert new(capsys)[0] == 0
    code, said = new(capsys)
    assert code == 2
    assert "klinik: is there already; nothing is overwritten: remove it, or choose another" in said


def test_the_policy_beside_the_run_file_is_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    private = sample(shift=5).read_bytes()
    sample()
    assert new(capsys)[0] == 0
    Path("klinik/train.csv").write_bytes(private)
    file = Path("klinik/run.toml")
    file.write_text(file.read_text(encoding="utf-8").replace("epsilon = 4.0", "epsilon = 40.0"),
                    encoding="utf-8")  # fmt: skip
    for command in ("check", "run"):
        with pytest.raises(SystemExit) as ended:
            main([command, "klinik/run.toml"])
        captured = capsys.readouterr()
        assert ended.value.code == 5, captured.out + captured.err
        assert "policy.toml: policy max_epsilon=4.0: the run file says privacy.epsilon=40" in (
            captured.err
        )
    Path("klinik/policy.toml").unlink()
    with pytest.raises(SystemExit) as ended:
        main(["check", "klinik/run.toml"])
    assert not ended.value.code
