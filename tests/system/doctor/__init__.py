"""`tacit doctor` beside real hosts, members and proxies."""
