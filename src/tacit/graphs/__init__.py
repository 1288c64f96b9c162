"""Networks as data: graphs of listed operations."""
