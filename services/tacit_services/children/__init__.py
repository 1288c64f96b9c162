"""Child processes: services, a broker, a store."""
