"""A member of a federation: a machine with rows."""
