"""Functions that tests run in other processes."""
