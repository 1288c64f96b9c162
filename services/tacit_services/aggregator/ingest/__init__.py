"""What edges say, up to the journal: limited, put together, decoded, screened."""
