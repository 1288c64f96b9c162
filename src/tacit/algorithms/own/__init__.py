"""A user's own algorithm: the settings and the server that it begins with."""
