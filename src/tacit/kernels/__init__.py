"""Compiled loops, each with a plain twin elsewhere."""
