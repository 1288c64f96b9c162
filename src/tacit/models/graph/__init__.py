"""Models as data: graphs of listed operations."""
