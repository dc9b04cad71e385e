"""Connections: two FIFO channels between one client and the server, each read one message at a time.

Rules for this file: it knows messages and peers, and not what they mean. A connection breaks at both ends: what
was under way is lost from some place on, and then each end hears of the break as the last message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from simulation.engine.scheduler import Actor, Scheduler

#: The last message of a channel: the other end is gone.
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
        """Some of the messages under way still arrive, the others are lost."""
        arrive = self.scheduler.rng.randint(0, len(self.messages))
        while len(self.messages) > arrive:
            self.messages.pop()
        self.put(BROKEN)

    def shut(self) -> None:
        """Nobody reads here any more."""
        self.messages.clear()
        self.rest()


class Connection:
    """What one TCP connection is: ``up`` is read by the server, ``down`` by the client."""

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
        """The client's end is closed."""
        self.down.shut()
        self.up.cut()

    def server_leaves(self) -> None:
        """The server's end is closed after all that it has sent."""
        self.up.shut()
        self.down.put(BROKEN)

    def breaks(self) -> None:
        """The network takes the connection away between both ends."""
        self.up.cut()
        self.down.cut()
