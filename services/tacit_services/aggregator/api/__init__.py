"""The aggregator's REST interface: routes, documents, metrics."""
