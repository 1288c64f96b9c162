"""A new run on own data: its run file, and what is known beforehand."""
