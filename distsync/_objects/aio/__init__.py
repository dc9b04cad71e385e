"""The objects for coroutines: each module as the one of the same name above it."""
