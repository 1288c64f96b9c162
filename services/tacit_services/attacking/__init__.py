"""Attacks on a trained model: shadow runs, and the files of their report."""
