"""Child processes of a command: services, a broker, a store; started, watched, started again."""
