"""Locks, queues and the other tools of threading and queue, across processes and hosts."""
