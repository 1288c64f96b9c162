"""Attacks on a trained model, and the most that ε and δ let any attack reach."""
