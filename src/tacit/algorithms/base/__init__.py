"""What all algorithms share: the roles of a server and of an edge, their records, rounds."""
