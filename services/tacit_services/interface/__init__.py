"""What `import tacit` hands on to programs and notebooks."""
