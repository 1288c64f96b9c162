"""`make bench`: how much of the broker, and of the processors, tacit's path leaves.

Ratios from one run.
"""
