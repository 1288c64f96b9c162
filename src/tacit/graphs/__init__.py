"""Networks as data: graphs of listed operations, read, checked, run and shown."""
