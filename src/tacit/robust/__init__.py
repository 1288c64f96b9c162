"""What tells poison from honest updates."""
