"""A member of a federation: a machine with rows, its consents, and its work in runs."""
