"""Attack reports on models."""
