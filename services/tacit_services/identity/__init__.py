"""An edge's folder: its ledger, where that came from."""
