"""Whether a user's own algorithm keeps the contract of an algorithm: `tacit conform algorithm`."""
