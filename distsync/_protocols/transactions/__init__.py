"""Two-phase commit."""
