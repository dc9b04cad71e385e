"""Drivers: they perform the steps of a protocol."""
