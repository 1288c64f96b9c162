"""The published data sets: where they are, how they are read."""
