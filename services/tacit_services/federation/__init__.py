"""The host of a federation: members, runs, and the processes that serve them."""
