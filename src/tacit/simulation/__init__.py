"""Whole runs under a virtual clock, in one process."""
