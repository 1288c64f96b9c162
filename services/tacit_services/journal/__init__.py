"""What a run keeps: the store's journal and snapshot, and the journal file."""
