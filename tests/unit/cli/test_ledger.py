"""`tacit ledger show | verify | export`: an edge's own ledger, without an aggregator."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tacit_services.display import text_tables
from tacit_services.identity import own_ledgers

from tacit.privacy.accounting import epsilon_pld, epsilon_rdp
from tacit.privacy.ledger import Ledger, read_chains
from tacit.privacy.ledger.chain import Chain, LedgerRow
from tests.system.cli.test_main import Captured, tacit
from tests.unit.identity.test_kinship import charge, data


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a ledger of two sessions and three rows: 6 releases of digits, and one of mnist."""
    for _ in range(2):
        with closing(Ledger(tmp_path / "ledger.db", "digits")) as ledger:
            for z in (1.5, 1.5, 2.0):
                ledger.charge(0.1, z, "gaussian", secret=True)
    with closing(Ledger(tmp_path / "ledger.db", "mnist")) as ledger:
        ledger.charge(0.1, 0.0, "none", secret=True)
    return tmp_path / "ledger.db"


def test_show_says_what_was_paid(path: Path, capsys: Captured) -> None:
    assert tacit("ledger", "show", str(path.parent), "--delta", "1e-6") == 0
    output = capsys.readouterr().out
    expected = epsilon_pld(read_chains(path)[0].history(), 1e-6)
    assert f"digits: 6 releases, ε {expected:.4g} (PLD)" in output
    assert "mnist: 1 releases, ε ∞ (not private) (PLD)" in output
    assert read_chains(path)[0].head.hex() in output
    assert tacit("ledger", "show", str(path), "--json") == 0
    digits, mnist = json.loads(capsys.readouterr().out)
    assert (digits["count"], digits["epsilon_pld"]) == (
        6,
        epsilon_pld(read_chains(path)[0].history(), 1e-5),
    )
    assert (mnist["count"], mnist["epsilon_rdp"]) == (1, None)


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a user's data folder with ledgers of `clinic`, of which two edges have released."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    home = tmp_path / "home" / "tacit"
    clinic = data("clinic", range(300))
    for edge, times in ((0, 3), (1, 9)):
        charge(own_ledgers.place(clinic, edge, home), times)
    own_ledgers.place(replace(clinic, name=str(tmp_path / "copy.csv")), 0, home)
    return home


@pytest.mark.parametrize("name", ["clinic", "copy.csv"])
def test_show_lists_the_ledgers_of_own_data_by_any_of_its_names(
    data_folder: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clinic").mkdir()  # the project's folder, as `tacit new` makes it
    (tmp_path / "copy.csv").write_text("age,outcome\n", encoding="utf-8")
    called = str(tmp_path / name) if name == "copy.csv" else name
    assert tacit("ledger", "show", called) == 0
    output = capsys.readouterr().out
    assert "clinic: whose privacy: row" in output
    assert f"known as {tmp_path / 'copy.csv'}, too" in output
    files = sorted(data_folder.glob("ledgers/*/0/edge-*.db"))
    for edge, (times, file) in enumerate(zip((3, 9), files, strict=True)):
        spent = text_tables.epsilon(epsilon_pld(read_chains(file)[0].history(), 1e-5))
        [line] = [line for line in output.splitlines() if f"edge-{edge} " in line]
        assert line.split() == [f"edge-{edge}", str(times), spent, str(file)]
    assert tacit("ledger", "show", called, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["names"] == ["clinic", str(tmp_path / "copy.csv")]
    assert [entry["count"] for entry in document["ledgers"]] == [3, 9]
    assert [entry["file"] for entry in document["ledgers"]] == list(map(str, files))


def test_show_says_what_edges_start_from_and_that_a_name_has_no_ledger(
    data_folder: Path, capsys: Captured
) -> None:
    own_ledgers.place(
        replace(data("clinic", range(300)), dealing="by row to 3 edges"), 2, data_folder
    )
    assert tacit("ledger", "show", "clinic", "--json") == 0
    ledgers = json.loads(capsys.readouterr().out)["ledgers"]
    assert [(entry["edge"], entry["count"]) for entry in ledgers] == [
        ("edge-2", 9),
        ("at the start", 9),
    ]
    assert tacit("ledger", "show", "clinik") == 3
    errors = capsys.readouterr().err
    assert f"no data called clinik has a ledger in {data_folder}" in errors
    [path] = data_folder.glob("ledgers/*/1/edge-2.db")
    with closing(sqlite3.connect(path)) as database:
        database.executescript("UPDATE entry SET count = 1 WHERE number = 1")
    assert tacit("ledger", "show", "clinic") == 5


def test_verify_says_that_it_is_whole_or_leaves_with_5(path: Path, capsys: Captured) -> None:
    assert tacit("ledger", "verify", str(path)) == 0
    assert "digits: the chain of 6 releases is whole" in capsys.readouterr().out
    assert tacit("ledger", "verify", str(path), "--json") == 0
    assert [row["count"] for row in json.loads(capsys.readouterr().out)] == [6, 1]
    with closing(sqlite3.connect(path)) as database:
        database.executescript("UPDATE entry SET count = 1 WHERE dataset = 'digits' AND number = 1")
    for command in ("show", "verify", "export"):
        assert tacit("ledger", command, str(path)) == 5
        errors = capsys.readouterr().err
        assert errors.startswith(f"tacit: ledger {path}: row 1 of digits: the chain is broken")
        assert errors.count("\n") == 1


def test_export_is_enough_to_check_the_chain_and_the_epsilon_elsewhere(
    path: Path, capsys: Captured, tmp_path: Path
) -> None:
    assert tacit("ledger", "export", str(path)) == 0
    printed = json.loads(capsys.readouterr().out)
    assert tacit("ledger", "export", str(path), "--out", str(tmp_path / "ledger.json")) == 0
    assert json.loads((tmp_path / "ledger.json").read_text()) == printed
    for document, chain in zip(printed, read_chains(path), strict=True):
        rows = tuple(
            LedgerRow(
                bytes.fromhex(row["session"]),
                row["sampling_rate"].hex(),
                float(row["noise_multiplier"]).hex(),
                row["mechanism"],
                row["secret"],
                row["count"],
                bytes.fromhex(row["head"]),
            )
            for row in document["entries"]
        )
        lineage, head = bytes.fromhex(document["lineage"]), bytes.fromhex(document["head"])
        again = Chain(document["dataset"], lineage, document["count"], head, rows)
        assert again == chain
        again.verify()
        with pytest.raises(ValueError, match="the chain is broken"):
            replace(
                again, rows=(replace(rows[0], noise_multiplier=(9.0).hex()), *rows[1:])
            ).verify()
    assert printed[0]["epsilon_rdp"] == epsilon_rdp(read_chains(path)[0].history(), 1e-5)


@pytest.mark.parametrize("name", ["ledger.db", "ledger.db-wal", "ledger.db-shm", "link", "hard"])
def test_export_never_overwrites_the_ledger(path: Path, capsys: Captured, name: str) -> None:
    (path.parent / "link").symlink_to("ledger.db")
    (path.parent / "hard").hardlink_to(path)
    before = path.read_bytes()
    assert tacit("ledger", "export", str(path.parent), "--out", str(path.parent / name)) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert path.read_bytes() == before


def test_export_replaces_a_file_whole_and_leaves_nothing_else(path: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").write_text("old")
    assert tacit("ledger", "export", str(path), "--out", str(tmp_path / "out" / "x")) == 0
    assert json.loads((tmp_path / "out" / "x").read_text())
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["x"]
    assert tacit("ledger", "export", str(path), "--out", "/dev/null") == 0
    assert Path("/dev/null").is_char_device()


def test_what_cannot_be_read_is_told_in_one_line(
    path: Path, capsys: Captured, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "folder").mkdir()
    for arguments, code in (
        (["show", str(tmp_path / "missing.db")], 3),
        (["verify", str(tmp_path / "folder")], 3),
        (["verify", str(tmp_path / "text")], 5),
        (["show", str(path), "--delta", "2"], 2),
        (["export", str(path), "--out", str(tmp_path / "none" / "x")], 2),
        (["show"], 2),
    ):
        assert tacit("ledger", *arguments) == code, arguments
        assert capsys.readouterr().err.count("\n") == 1
