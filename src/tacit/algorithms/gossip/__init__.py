"""A(DP)²SGD: peers that average in pairs, without a server."""
