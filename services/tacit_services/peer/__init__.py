"""The process of one peer, which averages with its neighbours."""
