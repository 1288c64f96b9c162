"""The host's page."""
