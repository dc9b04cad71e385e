"""Tasks of a pool, and their callers."""
