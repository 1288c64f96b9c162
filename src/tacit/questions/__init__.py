"""Questions about rows: what is counted for each, and its answer."""
