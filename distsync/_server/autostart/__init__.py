"""The embedded server of a user: found, or started."""
