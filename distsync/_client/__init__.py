"""SESSION: one ZooKeeper session a process; the only place with kazoo, clocks, threads and loops.

This file imports nothing, so that a protocol can import ``distsync._protocols.steps`` without kazoo.
"""
