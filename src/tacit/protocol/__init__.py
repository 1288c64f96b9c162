"""The wire: messages, envelopes, parts and topics, strictly decoded."""
