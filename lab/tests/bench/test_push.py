"""The bench's push, stage by stage."""

from __future__ import annotations

from tacit_lab.bench import push


def test_it_measures_every_stage_at_every_size() -> None:
    sizes = push.measured({"small": (750, 2), "large": (100_000, 2)})
    assert list(sizes) == ["small", "large"]
    for stages in sizes.values():
        assert stages.keys() == {"encode", "commit", "two_commits", "parts", "commit_over_two"}
        assert min(stages.values()) > 0
