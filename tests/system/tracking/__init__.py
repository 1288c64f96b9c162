"""Trackers of experiments, each with its own library."""
