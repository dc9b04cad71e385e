"""How it is measured: contestants take turns on the same server, and are compared within a round.

Rules for this file: no contestant and no goal; those stand in measures/. What is counted is counted in a run of its
own, through counting_proxy.py, which would be in the way of clocks.
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
"""However long they take."""


@dataclass(frozen=True)
class Pace:
    """How much of everything.

    ``settle``: what a contestant does for so long (seconds) after its turn, such as letting a kept lock go, is counted
    as its own. ``session``: of who is killed, and of who is not and must not lose it, however busy the machine is.
    ``quick``: one turn of each is enough, counted where there is something to count. ``row``: when the rounds of one
    row, at one size, have taken so long (seconds), a few of them have to do.
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
    """One turn."""

    operations: float
    seconds: float
    figures: Mapping[str, float] = field(default_factory=dict)


Work = Callable[[], Done]


class Server(NamedTuple):
    """``lasting``: it is there when we have gone, and what we have made there is to go with us."""

    name: str
    hosts: str
    lasting: bool = False


class Place:
    """A server, as contestants see it; what they open here is closed with it."""

    def __init__(self, server: Server, pace: Pace, hosts: str = "") -> None:
        """``hosts``: a meter's, before it."""
        self.hosts = hosts or server.hosts
        self._lasting = server.lasting
        self.pace = pace
        #: Past the meter, for those who only look.
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
        """So many stand in the line, and who came last has looked who is ahead."""
        self._observer = self._observer or self.kazoo(self.observed)
        limit = time.monotonic() + PATIENCE_S
        while self._standing(path) != contenders:
            if time.monotonic() > limit:
                raise RuntimeError(f"there are not {contenders} in the line of {path}")
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
    """A row: who is compared, and what must be reached. ``bound``: what keeps it from more. ``deep``: its one size is
    that of the deep queue, whatever that is in this run."""

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


# ---- turns


def for_seconds(work: Callable[[], object], seconds: float, batch: int = 10) -> Done:
    """As often as it goes."""
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
    """Each in a thread of its own; over when the last one is."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        if thread.is_alive():
            raise RuntimeError("who takes part here waits for ever")
    return Done(operations, time.perf_counter() - began)


# ---- rounds


def rounds_of(works: Mapping[str, Work], rounds: int, seconds: float = math.inf) -> Iterator[dict[str, Done]]:
    """In each round each has its turn, and each begins a round in its turn. After so many ``seconds`` it is enough."""
    names, until = list(works), time.monotonic() + seconds
    for number in range(rounds):
        if number >= FEWEST_ROUNDS and time.monotonic() > until:
            return
        at = number % len(names)
        yield {name: works[name]() for name in names[at:] + names[:at]}


def counted_turns(works: Mapping[str, Work], meter: Meter, settle: float) -> Iterator[tuple[str, Done, Counts]]:
    """One of each."""
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
    """Rates of some rounds, and counts of one."""
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
