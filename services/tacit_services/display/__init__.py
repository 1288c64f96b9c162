"""Terminal views of a run, and tables."""
