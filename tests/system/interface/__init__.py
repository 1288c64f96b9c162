"""Notebooks, run by a kernel."""
