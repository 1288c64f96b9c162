"""The host of a federation."""
