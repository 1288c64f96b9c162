"""The certificate authority, and the server at which edges enrol."""
