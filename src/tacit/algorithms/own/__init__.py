"""The settings and the servers that a user's own algorithm begins with."""
