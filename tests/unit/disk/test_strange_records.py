"""A record whose format is no number is damaged, and says so in one line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tacit_services.disk import json_record
from tacit_services.disk.json_register import JsonRegister

from tacit.errors import ConfigError


@dataclass
class _Record:
    name: str


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "1e999", "NaN", "[1]", "{}", '"x"'])
def test_a_format_that_is_no_number_is_one_line(tmp_path: Path, number: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(f'{{"format": {number}, "records": []}}')
    with pytest.raises(ConfigError, match=r"file\.json"):
        json_record.read(path, 1, dict)
    with pytest.raises(ConfigError, match=r"file\.json"):
        JsonRegister(path, "records", 1, _Record).all()
