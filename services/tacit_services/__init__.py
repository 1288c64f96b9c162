"""The processes: all I/O, and no mathematics. What a command starts is here."""
