"""The looks of `tacit doctor`."""
