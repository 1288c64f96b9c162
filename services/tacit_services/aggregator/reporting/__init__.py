"""Reports on its run: status, evaluations, results."""
