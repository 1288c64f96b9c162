"""Offers: run definitions that a host shows to its members, and the owners' answers to them."""
