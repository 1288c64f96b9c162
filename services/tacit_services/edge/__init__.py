"""The process of one edge."""
