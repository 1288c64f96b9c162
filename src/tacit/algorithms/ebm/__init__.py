"""Additive boosting."""
