"""Graphs as models: of one flat vector, with a loss."""
