"""What a terminal shows of a run: the live view, and tables."""
