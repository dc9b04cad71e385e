"""Find or start the embedded server of the user."""
