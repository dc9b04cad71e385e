"""Barriers, and the records that their znodes hold."""
