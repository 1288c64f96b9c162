"""The laboratory: the papers' figures and demonstrations. tacit never imports it."""
