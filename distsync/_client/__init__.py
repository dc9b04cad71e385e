"""CLIENT: one ZooKeeper session per process. The only layer with kazoo, clocks, threads and loops.

This file imports nothing, so that contender_info, settings and naming can be imported without kazoo.
"""
