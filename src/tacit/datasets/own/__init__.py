"""A user's own data: its public schema, how its rows are read, kept and dealt."""
