"""Reads that cost no request until a watch fires."""

from __future__ import annotations

from collections.abc import Mapping

import distsync
from bench.harness import Measure, Place, Work, for_seconds
from bench.results import KAZOO, OURS, faster


def event(place: Place, _: int) -> Mapping[str, Work]:
    ours, kazoo = distsync.Event(name="e", client=place.client()), place.kazoo()
    path, seconds = f"{place.top}/kazoo", place.pace.seconds
    return {
        OURS: lambda: for_seconds(ours.is_set, seconds),
        KAZOO: lambda: for_seconds(lambda: kazoo.exists(path), seconds),
    }


def config(place: Place, _: int) -> Mapping[str, Work]:
    ours, kazoo = distsync.Config(name="c", client=place.client()), place.kazoo()
    ours["rate"] = 10
    path, seconds = f"{place.top}/kazoo", place.pace.seconds
    return {
        OURS: lambda: for_seconds(lambda: ours["rate"], seconds),
        KAZOO: lambda: for_seconds(lambda: kazoo.exists(path), seconds),
    }


BOUND = "no request, and no protocol: Python's own time for the call"
MEASURES = [
    Measure("event", "Event.is_set, watched", event, (faster(500),), BOUND, operation="read"),
    Measure("config", "Config read, watched", config, (faster(500),), BOUND, operation="read"),
]
