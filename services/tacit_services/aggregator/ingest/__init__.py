"""The pipeline up to the journal: presence, reassembly, checks, guard, staging."""
