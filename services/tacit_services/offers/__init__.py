"""Offers: run definitions shown to members, and their owners' answers."""
