"""What is held, for how long, and its clean-up."""
