"""Connections: two FIFO channels between a client and the server, each read one message at a time.

A connection breaks at both ends: messages in transit are lost from some point on, and then each end
gets the break as the last message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from simulation.engine.scheduler import Actor, Scheduler

#: The last message of a channel: the connection is broken.
BROKEN = ("broken",)


class Channel(Actor):
    """One direction of a connection."""

    __slots__ = ("connection", "messages", "reads")

    def __init__(
        self, scheduler: Scheduler, connection: Connection, reads: Callable[[Connection, Any], object]
    ) -> None:
        super().__init__(scheduler)
        self.messages: deque[Any] = deque()
        self.connection = connection
        self.reads = reads

    def has_work(self) -> bool:
        return bool(self.messages)

    def put(self, message: Any) -> None:
        self.messages.append(message)
        self.ready()

    def run(self) -> None:
        messages = self.messages
        message = messages.popleft()
        if not messages:
            self.rest()
        self.reads(self.connection, message)

    def cut(self) -> None:
        """Lose the messages in transit from a random point on, and break."""
        arrive = self.scheduler.rng.randint(0, len(self.messages))
        while len(self.messages) > arrive:
            self.messages.pop()
        self.put(BROKEN)

    def shut(self) -> None:
        """Stop reading."""
        self.messages.clear()
        self.rest()


class Connection:
    """A TCP connection: the server reads ``up``, the client reads ``down``."""

    __slots__ = ("peer", "up", "down")

    def __init__(
        self,
        scheduler: Scheduler,
        peer: int,
        server_reads: Callable[[Connection, Any], object],
        client_reads: Callable[[Connection, Any], object],
    ) -> None:
        self.peer = peer
        self.up = Channel(scheduler, self, server_reads)
        self.down = Channel(scheduler, self, client_reads)

    def client_leaves(self) -> None:
        """Close the client's end."""
        self.down.shut()
        self.up.cut()

    def server_leaves(self) -> None:
        """Close the server's end after everything that it has sent."""
        self.up.shut()
        self.down.put(BROKEN)

    def breaks(self) -> None:
        """Break the connection between both ends."""
        self.up.cut()
        self.down.cut()
