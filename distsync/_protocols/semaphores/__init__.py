"""Semaphores, in our layout and in that of kazoo and Curator."""
