"""What `make check` holds the tree to: the map of its rooms, and the prose of its documents."""
