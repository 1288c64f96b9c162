"""`tacit demo inversion`: images rebuilt out of what edges push."""
