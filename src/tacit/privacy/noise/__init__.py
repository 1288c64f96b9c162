"""Secret random bytes, and the closed set of mechanisms."""
