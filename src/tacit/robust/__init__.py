"""What a server checks in edges' updates to detect poisoning, and rules that tolerate it."""
