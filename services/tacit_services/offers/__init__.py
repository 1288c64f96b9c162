"""Run definitions as members are shown them."""
