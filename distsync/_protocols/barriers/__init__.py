"""Barriers, and the records in their znodes."""
