"""The way of a message up to the journal: limited, put together, decoded, screened."""
