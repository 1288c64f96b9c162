"""The folder of a run's results: what an earlier run left there is kept, whatever comes next."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from tacit_services.testbed import output_folder

from tacit.errors import ConfigError


def run_in(out: Path, words: str) -> None:
    """Leave a folder as a run leaves it: its state, and a model with the text `words`."""
    with output_folder.locked(out):
        output_folder.fresh(out, Console(quiet=True))
        (out / "model.safetensors").write_text(words)


def test_each_earlier_run_is_kept_under_the_next_free_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    out = Path("out/run")  # where ward/run.toml and clinic/run.toml go, both
    Path("out/run-2").mkdir(parents=True)
    (Path("out/run-2") / "thesis.tex").touch()
    for words in ("ward", "clinic", "third"):
        run_in(out, words)
    assert (out / "model.safetensors").read_text() == "third"
    assert Path("out/run-1/model.safetensors").read_text() == "ward"
    assert Path("out/run-3/model.safetensors").read_text() == "clinic"
    assert [path.name for path in Path("out/run-2").iterdir()] == ["thesis.tex"]
    output_folder.fresh(out, Console())
    assert capsys.readouterr().out == "the earlier run in out/run is now in out/run-4\n"


def test_a_run_that_was_moved_aside_before_its_end_can_be_resumed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    output_folder.fresh(out, Console(quiet=True))
    output_folder.fresh(out, Console(quiet=True))
    assert output_folder.kept(tmp_path / "out-1") == tmp_path / "out-1" / "state"


def test_where_nothing_can_be_moved_to_the_earlier_run_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    run_in(out, "first")

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as disk:
        disk.setattr("pathlib.Path.mkdir", refused)
        with pytest.raises(ConfigError, match="Permission denied"):
            output_folder.fresh(out, Console(quiet=True))
    assert (out / "model.safetensors").read_text() == "first"
    assert (out / "state" / output_folder.MARKER).exists()


@pytest.mark.parametrize("ended", [True, False])
def test_decoded_rows_stay_only_where_a_run_can_go_on(tmp_path: Path, ended: bool) -> None:
    # Given a run whose edges have decoded private rows,
    out = tmp_path / "out"
    identity = output_folder.fresh(out, Console(quiet=True)) / "identities" / "0"
    (identity / "rows").mkdir(parents=True)
    (identity / "rows" / "x.f32").write_bytes(b"private")
    (identity / "enrolled.json").touch()
    if ended:
        (out / "summary.json").touch()
    # when it is done with, then what is handed on has none of them.
    output_folder.delete_rows(out)
    assert (identity / "rows").exists() is not ended
    assert (identity / "enrolled.json").exists()
