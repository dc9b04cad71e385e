"""One lock and many processes: how often it changes hands, and whether each process gets its share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import distsync
from bench.harness import Done, Measure, Place, Work, kazoo_client
from bench.results import KAZOO, OURS, faster, figure
from bench.role_processes import SPAWN, Crew

SMALLEST_SHARE, LARGEST_SHARE, HELD_ON = "least share / mean", "greatest share / mean", "holdings / hand-overs"
"""A share is one of the hand-overs. (A contender that starts a moment earlier has the lock cached, and
acquires it a thousand times.)
"""

NOBODY = -1
SECONDS = 8
"""Duration of a turn relative to others, so that each process gets its share."""


@contextmanager
def ours(hosts: str, top: str) -> Iterator[Any]:
    with distsync.connect(hosts, namespace=top, default=False) as client:
        yield distsync.Lock(name="contended", client=client)


@contextmanager
def theirs(hosts: str, top: str) -> Iterator[Any]:
    with kazoo_client(hosts) as client:
        yield client.Lock(f"{top}/kazoo")


MAKERS = {OURS: ours, KAZOO: theirs}


@contextmanager
def contender(who: str, hosts: str, top: str, number: int, last: Any) -> Iterator[Callable[[float], tuple[int, int]]]:
    """Returns the number of its holdings, and how many of them followed another process's. ``last`` is
    the last holder.
    """
    with MAKERS[who](hosts, top) as lock:

        def contend(seconds: float) -> tuple[int, int]:
            holdings = changes = 0
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                with lock:
                    holdings += 1
                    changes += last.value != number
                    last.value = number
            return holdings, changes

        yield contend


def hand_overs(place: Place, processes: int) -> Mapping[str, Work]:
    def crew_of(who: str) -> Work:
        last = SPAWN.Value("i", NOBODY, lock=False)
        arguments = [(who, place.hosts, place.top, number, last) for number in range(processes)]
        crew = place.stack.enter_context(Crew(contender, arguments))

        def turn() -> Done:
            last.value = NOBODY
            began = time.perf_counter()
            answers = crew.do(SECONDS * place.pace.seconds)
            spent = time.perf_counter() - began
            holdings, changes = ([answer[place] for answer in answers] for place in (0, 1))
            mean = sum(changes) / processes
            shares = {SMALLEST_SHARE: min(changes) / mean, LARGEST_SHARE: max(changes) / mean}
            return Done(sum(changes), spent, {**shares, HELD_ON: sum(holdings) / sum(changes)})

        return turn

    return {who: crew_of(who) for who in MAKERS}


MEASURES = [
    Measure(
        "lock-processes",
        "8 processes, one lock, hand-overs per second",
        hand_overs,
        (
            faster(2),
            figure(SMALLEST_SHARE, at_least=0.5),
            figure(LARGEST_SHARE, at_most=2),
            figure(SMALLEST_SHARE, of=KAZOO),
            figure(LARGEST_SHARE, of=KAZOO),
        ),
        "an event, a list and a delete for each hand-over, and on few processors the switch from process to process",
        sizes=(2, 4, 8),
        of_what="contenders",
        operation="hand-over",
    )
]
