"""The process of one party of a vertical run."""
