"""The folder that an edge locks: its ledger, where that came from, how it moves."""
