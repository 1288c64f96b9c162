"""The pages at `/` and `/docs`: clients of the REST interface, served by every aggregator."""
