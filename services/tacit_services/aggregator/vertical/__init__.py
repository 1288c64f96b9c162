"""The parts of a vertical run's aggregator: labels, and predictions."""
