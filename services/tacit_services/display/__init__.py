"""The terminal view of a run: the live view, and tables."""
