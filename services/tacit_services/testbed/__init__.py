"""Whole runs on one machine: `tacit run`, `tacit simulate`, predictions."""
