"""Graphs as models."""
