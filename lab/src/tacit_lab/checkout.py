"""The checkout that this file is in, which benches and studies need: they read its run files."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EXPERIMENTS = ROOT / "experiments"
