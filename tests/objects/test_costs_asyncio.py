"""Operations cost the same on an event loop as in a thread, where test_costs.py counts them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.asyncio_shim import Calm
from helpers.request_counts import Cost, counted

import distsync.asyncio
import distsync.queue
import distsync.threading
from distsync._client.client import Client
from distsync._protocols.retries import ensure

pytestmark = pytest.mark.usefixtures("no_guards", "nothing_kept")

Steps = list[Callable[[], Any]]

THREADED = SimpleNamespace(
    **vars(distsync.queue),
    **{name: getattr(distsync.threading, name) for name in ("Lock", "Semaphore", "Event", "Condition", "Barrier")},
)


def lock(of: Any) -> Steps:
    one = of.Lock(name="x")
    return [one.acquire, one.release] * 2 + [one.locked]


def semaphore(of: Any) -> Steps:
    one = of.Semaphore(2, name="x")
    return [one.acquire, one.acquire, one.release, one.release] * 2


def signal(of: Any) -> Steps:
    one = of.Semaphore(0, name="x")
    return [one.release, one.acquire] * 2


def event(of: Any) -> Steps:
    one = of.Event(name="x")
    return [one.set, one.wait, one.set, one.clear, one.set, one.is_set]


def condition(of: Any) -> Steps:
    one = of.Condition(name="x")
    return [one.acquire, one.notify, one.notify_all, one.release] * 2


def barrier(of: Any) -> Steps:
    one = of.Barrier(1, name="x")
    return [one.wait, one.wait, lambda: one.n_waiting, one.abort, lambda: one.broken, one.reset]


def queue(kind: str, maxsize: int = 0) -> Callable[[Any], Steps]:
    def steps(of: Any) -> Steps:
        one = getattr(of, kind)(maxsize, name="x")
        puts = [lambda item=item: one.put(item) for item in range(4)]
        return [*puts, one.qsize, one.get, one.get, one.get_nowait, one.task_done, one.full, one.empty]

    return steps


OPERATIONS = {
    "Lock": lock,
    "Semaphore(2)": semaphore,
    "Semaphore(0)": signal,
    "Event": event,
    "Condition": condition,
    "Barrier": barrier,
    "Queue()": queue("Queue"),
    "Queue(9)": queue("Queue", 9),
    "LifoQueue": queue("LifoQueue"),
    "PriorityQueue": queue("PriorityQueue"),
}


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.run_until_complete(made.shutdown_default_executor())
    made.close()


def costs(client: Client, steps: Steps, run: Callable[[Any], object]) -> list[Cost]:
    return [cost_of(client, step, run) for step in steps]


def cost_of(client: Client, step: Callable[[], Any], run: Callable[[Any], object]) -> Cost:
    """Return the cost of a step, including background work until the client is idle."""
    with counted(client) as cost:
        run(step())
        calm = Calm(client)
        while not calm.comes():
            pass
    return Cost(cost.requests - calm.looks, cost.round_trips - calm.looks, cost.events)


@pytest.mark.parametrize("steps", OPERATIONS.values(), ids=OPERATIONS)
def test_operation_costs_the_same_on_an_event_loop_as_in_a_thread(
    make_client: Callable[..., Client],
    namespace: str,
    loop: asyncio.AbstractEventLoop,
    steps: Callable[[Any], Steps],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def on_the_loop(result: Any) -> object:
        return loop.run_until_complete(result) if inspect.isawaitable(result) else result

    threaded, awaited = make_client(namespace=f"{namespace}/t"), make_client(namespace=f"{namespace}/a")
    found = []
    for client, module, run in ((threaded, THREADED, lambda result: result), (awaited, distsync.asyncio, on_the_loop)):
        monkeypatch.setattr("distsync._client.default_client.current.client", client)
        client.run(ensure(client.path("lock", "warm")))
        found.append(costs(client, steps(module), run))
    in_threads, on_loop = found
    assert on_loop == in_threads
