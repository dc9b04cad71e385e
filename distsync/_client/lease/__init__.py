"""Holds of this process, the lease that they depend on, and their clean-up."""
