"""What goes over the wire: messages, envelopes, parts, topics; strictly decoded."""
