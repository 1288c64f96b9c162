"""Connections: MQTT, TLS, messages in parts, HTTP."""
