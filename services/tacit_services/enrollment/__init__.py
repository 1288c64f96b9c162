"""The certificate authority, and the enrolment server."""
