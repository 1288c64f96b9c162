"""Child processes of a command: services, a broker, a store."""
