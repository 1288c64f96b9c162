"""The page of a federation's host: its runs, and each run's own page."""
