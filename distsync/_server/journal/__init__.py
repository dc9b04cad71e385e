"""What is on disk: the transaction log."""
