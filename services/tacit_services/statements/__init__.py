"""Edges' signed statements."""
