"""Questions and tables have the bits that are kept, and another seed has others."""

from __future__ import annotations

import pytest

from tests.golden import kept_bits


def test_questions_and_models_of_tables_have_the_bits_that_are_kept() -> None:
    assert kept_bits.differences() == []


def test_another_seed_and_a_digest_that_is_missing_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = kept_bits.kept()
    for name in ("_ASKED", "_TRAINED"):
        text = getattr(kept_bits, name).replace("seed = 11", "seed = 12")
        monkeypatch.setattr(kept_bits, name, text)
    missing = "ask: answers"
    others = {name: digest for name, digest in kept.items() if name != missing}
    monkeypatch.setattr(kept_bits, "kept", lambda: others)
    lines = kept_bits.differences()
    for line, (name, digest) in zip(lines, others.items(), strict=False):
        assert line.startswith(f"{name}: was {digest}, is ")
    assert lines[-1].startswith(f"{missing}: was absent, is ")
    assert len(lines) == len(kept)
