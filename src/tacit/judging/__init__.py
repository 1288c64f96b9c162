"""Judging: counts of held-out rows, and figures of their sums."""
