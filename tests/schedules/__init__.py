"""Runs under schedules of faults that a seed draws, in one thread and in simulated time."""
