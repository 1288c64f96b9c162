"""The only way from private rows to a message."""
