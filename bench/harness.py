"""How measuring works: contestants take turns on the same server, and are compared within a round.

Requests are counted in a run of their own, through counting_proxy.py, because the proxy would
distort the times.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import distsync
from bench.counting_proxy import Counts, Meter
from bench.results import COUNTED, Goal, Result
from distsync._protocols.retries import remove_tree
from distsync._protocols.state.election import LEADER

PATIENCE_S = 120

FEWEST_ROUNDS = 3
"""Minimum number of rounds, however long they take."""


@dataclass(frozen=True)
class Pace:
    """The amount of work.

    Attributes:
        seconds: Duration of a turn.
        items: Number of items of a turn.
        deep: Number of items of the deep queue.
        window: Number of outstanding items.
        largest: Maximum size of a row with sizes.
        sides: Number of processes on each side.
        session: Session timeout in seconds of processes that are killed, or must not lose their session.
        settle: Seconds after a turn whose requests still count, such as the eviction of a cached lock.
        row: Seconds after which the rounds of one row, at one size, end early.
        quick: Whether one turn each is enough, counted where there is something to count.
    """

    seconds: float = 0.2
    items: int = 600
    deep: int = 100_000
    window: int = 2000
    largest: int = 1 << 30
    sides: int = 4
    session: float = 2.0
    settle: float = 0.25
    row: float = 20.0
    quick: bool = False


FULL = Pace()
QUICK = Pace(seconds=0.02, items=100, deep=1000, window=100, largest=2, sides=1, session=4.0, settle=0.05, quick=True)


@dataclass(frozen=True)
class Done:
    """The result of one turn."""

    operations: float
    seconds: float
    figures: Mapping[str, float] = field(default_factory=dict)


Work = Callable[[], Done]


class Server(NamedTuple):
    """A server. ``lasting`` means that it outlives the run, so that our znodes must be deleted."""

    name: str
    hosts: str
    lasting: bool = False


class Place:
    """A server as used by contestants. What they open here is closed with it."""

    def __init__(self, server: Server, pace: Pace, hosts: str = "") -> None:
        """``hosts`` is the address of a counting proxy in front of it."""
        self.hosts = hosts or server.hosts
        self._lasting = server.lasting
        self.pace = pace
        #: Address without the proxy, for observers.
        self.observed = server.hosts
        self.top = f"/bench-{uuid.uuid4().hex[:8]}"
        self.stack = ExitStack()
        self._observer: KazooClient | None = None

    def client(self, **settings: Any) -> distsync.Client:
        settings = {"namespace": self.top, "default": False, **settings}
        return self.stack.enter_context(distsync.connect(self.hosts, **settings))

    def kazoo(self, hosts: str = "", **settings: Any) -> KazooClient:
        return self.stack.enter_context(kazoo_client(hosts or self.hosts, **settings))

    def until(self, path: str, contenders: int) -> None:
        """Wait until this many contenders are queued and the last one has read the queue."""
        self._observer = self._observer or self.kazoo(self.observed)
        limit = time.monotonic() + PATIENCE_S
        while self._standing(path) != contenders:
            if time.monotonic() > limit:
                raise RuntimeError(f"{path} does not have {contenders} contenders")
            time.sleep(0.002)
        time.sleep(0.02)

    def _standing(self, path: str) -> int:
        assert self._observer is not None
        try:
            return sum(name != LEADER for name in self._observer.get_children(path))
        except NoNodeError:
            return 0

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()
        if self._lasting:
            with distsync.connect(self.observed, default=False) as client:
                client.run(remove_tree(self.top))


@contextmanager
def kazoo_client(hosts: str, **settings: Any) -> Iterator[KazooClient]:
    client = KazooClient(hosts, connection_retry={"max_tries": -1, "max_delay": 1}, **settings)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


@dataclass(frozen=True)
class Measure:
    """A row of the table.

    Attributes:
        name: Its name for ``--only``.
        title: Its title in the table.
        prepare: Returns the contestants.
        goals: What must be reached.
        bound: What limits the result.
        sizes: The sizes at which it is measured.
        of_what: The unit of the sizes.
        rounds: Maximum number of rounds.
        counted: Whether requests are counted.
        operation: The name of an operation.
        deep: Whether its only size is that of the deep queue in this run.
    """

    name: str
    title: str
    prepare: Callable[[Place, int], Mapping[str, Work]]
    goals: tuple[Goal, ...]
    bound: str = ""
    sizes: tuple[int, ...] = (1,)
    of_what: str = ""
    rounds: int = 1 << 10
    counted: bool = True
    operation: str = "operation"
    deep: bool = False


def for_seconds(work: Callable[[], object], seconds: float, batch: int = 10) -> Done:
    """Repeat ``work`` for this time."""
    done, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        for _ in range(batch):
            work()
        done += batch
    return Done(done, spent)


def so_often(work: Callable[[], object], times: int, operations: int | None = None) -> Done:
    began = time.perf_counter()
    for _ in range(times):
        work()
    return Done(operations or times, time.perf_counter() - began)


def at_once(works: list[Callable[[], object]], operations: float = 1) -> Done:
    """Run each in a thread of its own, until the last one has ended."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        if thread.is_alive():
            raise RuntimeError("a contestant does not end")
    return Done(operations, time.perf_counter() - began)


def rounds_of(works: Mapping[str, Work], rounds: int, seconds: float = math.inf) -> Iterator[dict[str, Done]]:
    """Yield rounds, in which each contestant has a turn. Each starts a round in its turn. Stops after
    ``seconds``.
    """
    names, until = list(works), time.monotonic() + seconds
    for number in range(rounds):
        if number >= FEWEST_ROUNDS and time.monotonic() > until:
            return
        at = number % len(names)
        yield {name: works[name]() for name in names[at:] + names[:at]}


def counted_turns(works: Mapping[str, Work], meter: Meter, settle: float) -> Iterator[tuple[str, Done, Counts]]:
    """Yield one counted turn of each contestant."""
    for name, work in works.items():
        before = meter.counts
        done = work()
        time.sleep(settle)
        yield name, done, meter.counts.since(before)


def per_operation(done: Done, counts: Counts) -> dict[str, float]:
    return {kind: count / done.operations for kind, count in zip(COUNTED, counts, strict=True)}


def warmed(measure: Measure, place: Place, size: int) -> Mapping[str, Work]:
    works = measure.prepare(place, size)
    if measure.rounds > 1 and (measure.counted or not place.pace.quick):
        for work in works.values():
            work()
    return works


def measured(measure: Measure, server: Server, size: int, rounds: int, pace: Pace) -> Result:
    """Return the rates of some rounds, and the counts of one."""
    rates: dict[str, list[float]] = defaultdict(list)
    figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    counts: dict[str, dict[str, float]] = {}
    if not (pace.quick and measure.counted):
        with Place(server, pace) as place:
            number = 1 if pace.quick else min(rounds, measure.rounds)
            for turn in rounds_of(warmed(measure, place, size), number, pace.row):
                note(turn, rates, figures)
    if measure.counted:
        with Meter(server.hosts) as meter, Place(server, pace, meter.hosts) as place:
            for who, done, count in counted_turns(warmed(measure, place, size), meter, pace.settle):
                counts[who] = per_operation(done, count)
                if pace.quick:
                    note({who: done}, rates, figures)
    return Result(
        measure.name, server.name, size, dict(rates), {who: dict(each) for who, each in figures.items()}, counts
    )


def note(turn: dict[str, Done], rates: dict[str, list[float]], figures: dict[str, dict[str, list[float]]]) -> None:
    for who, done in turn.items():
        rates[who].append(done.operations / done.seconds)
        for name, value in done.figures.items():
            figures[who][name].append(value)
