"""The time until the next leader leads, after one has resigned, and after one was killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import distsync
from bench.harness import Done, Measure, Place, Work, kazoo_client
from bench.results import KAZOO, OURS, faster, figure
from bench.role_processes import Crew

LONG_S = 10.0
"""Session timeout in seconds that outlasts a busy machine, where no leader is killed."""

TIMES = 10
LATE = "seconds beyond the session time-out"


@contextmanager
def ours(hosts: str, top: str, name: str, seconds: float) -> Iterator[Any]:
    settings = {"namespace": top, "session_timeout": seconds, "default": False}
    with distsync.connect(hosts, **settings) as client:
        yield distsync.Election(name=name, client=client)


@contextmanager
def theirs(hosts: str, top: str, name: str, seconds: float) -> Iterator[Any]:
    with kazoo_client(hosts, timeout=seconds) as client:
        yield client.Election(f"{top}/{name}")


MAKERS = {OURS: ours, KAZOO: theirs}
PATHS = {OURS: lambda place, name: f"{place.top}/election/{name}", KAZOO: lambda place, name: f"{place.top}/{name}"}


class Candidacy:
    """A thread that leads until it is asked to resign."""

    def __init__(self, election: Any) -> None:
        self.leads, self.enough = threading.Event(), threading.Event()
        self.since = 0.0
        self._thread = threading.Thread(target=lambda: election.run(self._lead), daemon=True)
        self._thread.start()

    def _lead(self) -> None:
        self.since = time.perf_counter()
        self.leads.set()
        self.enough.wait()

    def step_down(self) -> float:
        """Resign, and return when."""
        now = time.perf_counter()
        self.enough.set()
        return now

    def end(self) -> None:
        self.enough.set()
        self._thread.join()


def hand_over(place: Place, _: int) -> Mapping[str, Work]:
    times = max(1, min(TIMES, place.pace.items // 100))

    def of(who: str) -> Work:
        elections = [place.stack.enter_context(MAKERS[who](place.hosts, place.top, "e", LONG_S)) for _ in range(2)]

        def once() -> float:
            first = Candidacy(elections[0])
            first.leads.wait()
            second = Candidacy(elections[1])
            place.until(PATHS[who](place, "e"), 2)
            began = first.step_down()
            second.leads.wait()
            first.end()
            second.end()
            return second.since - began

        return lambda: Done(times, sum(once() for _ in range(times)))

    return {who: of(who) for who in MAKERS}


@contextmanager
def leading(who: str, hosts: str, top: str, name: str, seconds: float) -> Iterator[Callable[[Any], None]]:
    """Lead until killed."""
    with MAKERS[who](hosts, top, name, seconds) as election:
        first = Candidacy(election)
        first.leads.wait()
        yield lambda _: None


def killed(place: Place, _: int) -> Mapping[str, Work]:
    numbers = count()
    session = place.pace.session

    def of(who: str) -> Work:
        def turn() -> Done:
            name = f"e{next(numbers)}"
            with (
                Crew(leading, [(who, place.hosts, place.top, name, session)]) as crew,
                MAKERS[who](place.hosts, place.top, name, session) as election,
            ):
                second = Candidacy(election)
                place.until(PATHS[who](place, name), 2)
                began = time.perf_counter()
                crew.kill()
                second.leads.wait()
                second.end()
            spent = second.since - began
            return Done(1, spent, {LATE: spent - session})

        return turn

    return {who: of(who) for who in MAKERS}


MEASURES = [
    Measure(
        "election",
        "Election: graceful hand-over",
        hand_over,
        (faster(1.2),),
        "a delete and an event; LEADER is written at the same time. kazoo lists the candidates once more",
        operation="hand-over",
    ),
    Measure(
        "election-killed",
        "Election: after SIGKILL",
        killed,
        (figure(LATE, at_most=0.2, unit=" s"), figure(LATE, of=KAZOO, unit=" s")),
        "the server, which ends sessions: ZooKeeper rounds each timeout up to its next tick (0.5 s here)",
        rounds=5,
        counted=False,
        operation="hand-over",
    ),
]
