"""The aggregator's reports on its run: status, evaluations, results."""
