"""Whole runs in one process under a virtual clock, with the same roles as over MQTT."""
