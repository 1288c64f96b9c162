"""Compiled loops: numba versions of a few hot functions, each with a plain twin elsewhere."""
