"""The command line: a file for each command, or family of commands."""
