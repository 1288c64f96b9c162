"""The command line: a file for every command, or family of commands, of `tacit`."""
