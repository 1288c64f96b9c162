"""The host of a federation: its broker, its store, its members, and the people who use it."""
