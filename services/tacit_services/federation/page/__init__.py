"""A host's page: its runs, and the page of each."""
