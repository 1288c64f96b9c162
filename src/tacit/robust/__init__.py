"""What tells poison from honest updates: the law of their noise, agreement, rules that bear lies."""
