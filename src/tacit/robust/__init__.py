"""Checks of updates, and rules that tolerate poisoning."""
