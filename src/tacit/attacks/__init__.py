"""Attacks on models, and their bounds."""
