"""Queues: order, bounds, claims."""
