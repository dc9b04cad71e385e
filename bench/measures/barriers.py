"""Barriers whose parties are threads of one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import distsync
from bench.harness import Done, Measure, Place, Work, at_once
from bench.results import KAZOO, OURS, faster

DOUBLE, BOTH = "distsync DoubleBarrier", "kazoo, both ways"


def barrier(place: Place, parties: int) -> Mapping[str, Work]:
    """kazoo's parties only enter; that they leave before the next round is timed only in "both ways"."""
    client, kazoo = place.client(), place.kazoo()
    ours = distsync.Barrier(parties, name="b", client=client)
    double = distsync.DoubleBarrier(parties, name="d", client=client)
    theirs = [kazoo.DoubleBarrier(f"{place.top}/kazoo", parties, identifier=str(one)) for one in range(parties)]

    def both(enter: list[Callable[[], object]], leave: list[Callable[[], object]]) -> Done:
        """All enter, then all leave: a party that leaves kazoo's while others still enter blocks them
        forever.
        """
        return Done(parties, at_once(enter).seconds + at_once(leave).seconds)

    def party() -> None:
        double.enter()
        double.leave()

    def kazoos() -> Done:
        done = at_once([one.enter for one in theirs], parties)
        at_once([one.leave for one in theirs])
        return done

    return {
        OURS: lambda: at_once([ours.wait] * parties, parties),
        KAZOO: kazoos,
        DOUBLE: lambda: at_once([party] * parties, parties),
        BOTH: lambda: both([one.enter for one in theirs], [one.leave for one in theirs]),
    }


MEASURES = [
    Measure(
        "barrier",
        "Barrier of 50 parties",
        barrier,
        (faster(2), faster(of=DOUBLE, than=BOTH)),
        "a create for each party, and 50 threads that Python starts and wakes one after the other",
        sizes=(2, 10, 50),
        of_what="parties",
        operation="party",
    )
]
