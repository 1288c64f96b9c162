"""The page at `/`: one more client of the REST interface, served by every aggregator."""
