"""The papers' networks."""
