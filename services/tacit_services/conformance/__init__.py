"""The checks of `tacit conform`."""
