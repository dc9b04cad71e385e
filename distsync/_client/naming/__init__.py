"""Names and paths of objects."""
