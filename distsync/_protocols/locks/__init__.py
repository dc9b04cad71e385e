"""Locks, the cache of released locks, and revocation."""
