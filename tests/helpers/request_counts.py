"""Requests, round trips and events of clients, counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from distsync._client.client import Client
from distsync._client.driver.pending_steps import AwaitSignal
from distsync._protocols.steps import Exists
from helpers.sample_protocols import ask


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


def sent(client: Client, kind: str) -> int:
    return client.statistics().requests.get(kind, 0)


def spent(client: Client, call: Callable[[], Any]) -> tuple[int, int]:
    """Requests and round trips of one call."""
    with counted(client) as cost:
        call()
    return cost.requests, cost.round_trips


def settle(clients: list[Client]) -> None:
    """Whatever events were on their way to these clients have come: an answer never overtakes one. 1 request each."""
    for one in clients:
        one.run(ask(Exists("/")))


def is_at_rest(client: Client) -> bool:
    """Whether it does something in the background, and all of that waits."""
    tasks = tuple(client._runtime.background_thread._runs) if client._runtime else ()
    return bool(tasks) and all(isinstance(task._pending, AwaitSignal) for task in tasks)
