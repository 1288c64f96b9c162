"""Attacks on the privacy code: measured lower bounds of ε, and mutants that must be caught."""
