"""What runs in a tree's own process. It imports the tree through `golden.layout` only."""
