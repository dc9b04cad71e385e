"""The ZooKeeper session over kazoo."""
