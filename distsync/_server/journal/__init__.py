"""The journal on disk, and the records of changes in it (change_records.py: pure, the engine uses it too)."""
