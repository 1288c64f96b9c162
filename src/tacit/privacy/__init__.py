"""The only way from private rows to a message: clip, sample, charge the ledger, add noise."""
