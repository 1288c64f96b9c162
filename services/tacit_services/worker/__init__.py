"""What edge, peer and party share: the loop over MQTT, the outbox, rows, enrolment."""
