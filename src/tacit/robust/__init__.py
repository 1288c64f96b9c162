"""What tells poison from honest updates: their law, their agreement, and rules that bear lies."""
