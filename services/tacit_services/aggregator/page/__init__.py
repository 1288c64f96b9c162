"""The pages at `/` and `/docs`, clients of REST."""
