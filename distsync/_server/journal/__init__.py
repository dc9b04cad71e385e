"""The write-ahead log, and the records of changes that it contains."""
