"""Compiled loops: what numba makes of a few hot functions, for whoever has a plain twin of them."""
