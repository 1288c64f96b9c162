"""The papers' figures: sweeps of simulations, pictures, claims and verdicts."""
