"""What the aggregator says of its run: status, evaluations, results."""
