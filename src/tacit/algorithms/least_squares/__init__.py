"""Least squares in closed form."""
