"""Certificates: the authority in a folder, and the desk where edges enrol. Knows neither torch nor MQTT."""
