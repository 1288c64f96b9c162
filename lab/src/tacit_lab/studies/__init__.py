"""Experiments that the documents report: a module for each, run as `python -m`."""
