"""What only a vertical run's aggregator has: labels, and predictions."""
