"""Drivers: they perform the steps that protocols await."""
