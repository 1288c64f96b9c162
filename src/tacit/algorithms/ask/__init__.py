"""Questions: all in one release."""
