"""What edge, peer and party share: the loop over MQTT, outbox, rows, enrolment."""
