"""The files of an owner's page."""
