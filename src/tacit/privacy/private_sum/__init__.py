"""Draws a batch, clips its gradients, adds them up."""
