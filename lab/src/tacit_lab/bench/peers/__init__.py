"""tacit beside others that train the same network on the same machine: `make bench-peers`."""
