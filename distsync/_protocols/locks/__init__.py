"""Locks, the cache of released ones, revocation."""
