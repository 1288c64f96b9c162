"""The loop over MQTT, outbox, rows and enrolment that edge, peer and party share."""
