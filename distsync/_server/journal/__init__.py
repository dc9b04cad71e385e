"""The journal on disk, and the records of changes in it (records.py: pure, the engine uses it too)."""
