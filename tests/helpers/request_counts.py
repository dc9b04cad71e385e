"""Requests, round trips and events of clients, counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from distsync._client.client import Client


@dataclass
class Cost:
    """What a client spent while it was counted."""

    requests: int = 0
    round_trips: int = 0
    events: int = 0


@contextmanager
def counted(*clients: Client) -> Iterator[Cost]:
    """What the block costs these clients together."""
    cost = Cost()
    before = [client.statistics() for client in clients]
    yield cost
    for client, then in zip(clients, before, strict=True):
        now = client.statistics()
        cost.requests += sum(now.requests.values()) - sum(then.requests.values())
        cost.round_trips += now.round_trips - then.round_trips
        cost.events += now.events - then.events
