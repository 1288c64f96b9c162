"""A run file that is no TOML, or not UTF-8, says what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit import config
from tacit.errors import ConfigError


@pytest.mark.parametrize(
    ("line", "help_"),
    [
        ("epsilon = 4,0", "a number has a decimal point, as 4.0"),
        ("epsilon = 4,0  # much", "a number has a decimal point, as 4.0"),
        ("Größe_cm = { low = 1 }", 'needs quotes: "Größe_cm"'),
        ("name = clinic", "a text needs quotes"),
        ("counts = True", "write true or false"),
        ("a = 1\na = 2", "a key stands twice in its section"),
    ],
)
def test_a_line_that_is_no_toml_is_told_what_to_write(
    tmp_path: Path, line: str, help_: str
) -> None:
    path = tmp_path / "run.toml"
    path.write_text(f"[privacy]\n{line}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"not TOML: .*at line \d") as refused:
        config.load(path)
    assert str(refused.value).endswith(help_)
    assert "\n" not in str(refused.value)


def test_a_run_file_in_another_encoding_is_told_to_be_saved_as_utf8(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[run]\nname = "Größe"\n', encoding="cp1252")
    with pytest.raises(ConfigError) as refused:
        config.load(path)
    assert str(refused.value) == f"run file {path}: is not UTF-8 text; save it as UTF-8"
