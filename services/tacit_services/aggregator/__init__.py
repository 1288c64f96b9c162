"""The server of a run: accepts messages, journals them, folds them, replies."""
