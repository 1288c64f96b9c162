"""Whole runs on one machine: `tacit run` (all processes), `tacit simulate`, predictions."""
