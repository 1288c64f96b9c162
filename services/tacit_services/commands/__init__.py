"""Groups of the `tacit` command, one file each. They import what is heavy inside their functions."""
