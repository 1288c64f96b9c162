"""Files that are whole after a crash."""
