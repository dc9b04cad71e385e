"""Pools: callers, workers, and the pipes between them."""
