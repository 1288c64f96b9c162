"""The library: what is computed, private or not.

It knows no socket, process, clock or environment.
"""
