"""Finds poison."""
