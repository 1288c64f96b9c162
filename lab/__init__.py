"""The laboratory; its package is in `src`, and this name is for its tests alone."""
