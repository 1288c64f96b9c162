"""A new run on a user's own data: its run file, and what is known before it costs anything."""
