"""What a fault costs tacit, and others, on one task: `make bench-faults`."""
