"""A vertical run's labels and predictions."""
