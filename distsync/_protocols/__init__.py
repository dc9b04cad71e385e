"""PROTOCOLS: one published recipe a file, as ``async def`` over steps. No socket, thread, clock, sleep or kazoo."""
