"""The server and edge roles that algorithms share, with records of edges and rounds."""
