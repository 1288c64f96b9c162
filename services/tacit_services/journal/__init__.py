"""A run's journal and snapshot in a store, and the journal file."""
