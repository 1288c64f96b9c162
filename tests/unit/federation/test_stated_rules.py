"""An organisation's own broker reads what its federation states."""

from __future__ import annotations

from pathlib import Path

from tacit_services.federation.stated_rules import ACL, StatedRules


def users(folder: Path) -> set[str]:
    lines = (folder / ACL).read_text().splitlines()
    return {line.removeprefix("user ") for line in lines if line.startswith("user ")}


def test_the_file_names_those_who_have_consented_and_nobody_else(tmp_path: Path) -> None:
    rules = StatedRules(tmp_path)
    rules.open_run("retina")
    rules.open("retina", "edge-1")
    rules.open("retina", "edge-2")
    assert {"edge-1", "edge-2", "aggregator-retina"} <= users(tmp_path)
    rules.close("retina", "edge-1")
    assert "edge-1" not in users(tmp_path)
    rules.disconnect("edge-2")
    assert "edge-2" not in users(tmp_path)
    rules.close_run("retina")
    assert "aggregator-retina" not in users(tmp_path)


def test_a_later_host_goes_on_with_them(tmp_path: Path) -> None:
    StatedRules(tmp_path).open("retina", "edge-1")
    (tmp_path / ACL).unlink()
    StatedRules(tmp_path)
    assert "edge-1" in users(tmp_path)
