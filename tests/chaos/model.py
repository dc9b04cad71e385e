"""Promises about a history, whatever broke: yields a line for each violation.

It refuses only what cannot be right: if the outcome of a call is unknown (its process was killed,
or it ended with an error), both are allowed.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from chaos.history import CONFIRMED, Call, Event, calls
from chaos.waiting import GRACE_S, HEARD_S, condition, double_barrier, flag

EXPECTED_ERRORS = frozenset(
    "Empty Full BrokenBarrierError KeyboardInterrupt LockLostError NotHeldError UnreachableError SessionLostError"
    " OutcomeUnknownError DeadlineError DisconnectedError VoteRefusedError".split()
)
"""What calls may end with when the world breaks, and nothing else."""


# ---- what is held


class Holding(NamedTuple):
    """It surely held from ``first`` to ``last``: it said so after the one, and before the other."""

    first: float
    last: float
    who: str
    token: int


def holdings(events: Iterable[Event]) -> list[Holding]:
    """In the order in which they began."""
    found: dict[tuple[str, int], Holding] = {}
    for event in events:
        if "claim" in event:
            key = event["who"], event["claim"]
            before = found.get(key)
            first = before.first if before else event["t"]
            found[key] = Holding(first, max(event["from"], before.last if before else 0.0), *key)
    return sorted(found.values())


class Ending(NamedTuple):
    """Somebody else ended a session: asked for at ``asked``, answered at ``over``; by ``known`` its process knows."""

    who: str
    asked: float
    over: float
    known: float


def endings(events: Iterable[Event]) -> Iterator[Ending]:
    """The servers may take long to end a session, so that it counts from their answer; without one nobody knows when it
    will be over. A process that is cut off believes it to last as long as sessions do."""
    asked: dict[str, float] = {}
    for event in events:
        if event.get("fault") == "expire":
            asked[event["whose"]] = event["t"]
        elif event.get("fault") == CONFIRMED and event["of"] in asked:
            yield Ending(event["of"], asked.pop(event["of"]), event["t"], event["t"] + event["lasts"])
    yield from (Ending(who, at, at, float("inf")) for who, at in asked.items())


def sure(events: list[Event]) -> Iterator[Holding]:
    """Return the holdings, except what was claimed in good faith after the session was ended by the
    test.
    """
    ended = list(endings(events))
    for one in holdings(events):
        theirs = (end for end in ended if end.who == one.who and one.first <= end.over)
        mine = [end for end in theirs if end.asked < one.last <= end.known]
        yield one._replace(last=max(one.first, min(end.asked for end in mine))) if mine else one


def overlapping(events: list[Event], permits: int = 1) -> Iterator[str]:
    """More than ``permits`` held at a time."""
    inside: list[Holding] = []
    for one in sure(events):
        if one.first >= one.last:
            continue  # it said so once only: at no time that is known
        inside = [other for other in inside if other.last > one.first]
        inside.append(one)
        if len(inside) > permits:
            yield f"{len(inside)} hold at {one.first:.3f}, {permits} may: " + ", ".join(map(str, inside))


def tokens(events: Iterable[Event]) -> Iterator[str]:
    """A later holder's token is not greater, or two have the same."""
    found = holdings(events)
    owners: dict[int, str] = {}
    for one in found:
        other = owners.setdefault(one.token, one.who)
        if other != one.who:
            yield f"token {one.token} was {other}'s and {one.who}'s"
    ended: list[Holding] = []
    for one in found:
        for before in ended:
            if before.last < one.first and before.token >= one.token and before.who != one.who:
                yield f"{one} came after {before}, with a token that is not greater"
        ended = [*ended[-20:], one]


def lock(events: list[Event]) -> Iterator[str]:
    """Lock and Election: one at a time, and tokens grow."""
    yield from overlapping(events)
    yield from tokens(events)


def rlock(events: list[Event]) -> Iterator[str]:
    """As Lock; what was taken twice is held until it is released twice."""
    yield from lock(events)
    since = {(one.who, one.token): one.first for one in holdings(events)}
    mine: dict[str, list[Call]] = defaultdict(list)
    for call in calls(events, "acquire", "again", "release"):
        mine[call.who].append(call)
    for who, theirs in mine.items():
        for again, inner, last in zip(theirs, theirs[1:], theirs[2:], strict=False):
            twice = again.name == "again" and since.get((who, again.value), again.begun) < again.begun
            if twice and inner.succeeded and inner.arg == "inner" and last.error == "NotHeldError":
                yield f"{inner} has released what was taken twice: {last}"


def shared_lock(events: list[Event]) -> Iterator[str]:
    """A writer is alone, readers may overlap; tokens increase from each holder to all that it
    excludes.
    """
    read, written = ([event for event in events if event.get("side", side) == side] for side in ("read", "write"))
    yield from lock(written)
    for writer, reader in itertools.product(sure(written), sure(read)):
        first, last = max(writer.first, reader.first), min(writer.last, reader.last)
        if writer.who != reader.who and first < last:
            yield f"one writes and another one reads at {first:.3f}: {writer}, {reader}"
    for writer, reader in itertools.product(holdings(written), holdings(read)):
        before, after = sorted((writer, reader))
        if writer.who != reader.who and before.last < after.first and before.token >= after.token:
            yield f"{after} came after {before}, with a token that is not greater"


def semaphore(events: list[Event], permits: int) -> Iterator[str]:
    """No more than its permits."""
    yield from overlapping(events, permits)


# ---- queues


def _item(value: Any) -> tuple[Any, ...]:
    return tuple(value)


class Queued:
    """The puts and gets of a history."""

    def __init__(self, events: list[Event]) -> None:
        self.puts = {_item(call.arg): call for call in calls(events, "put")}
        self.gets: dict[tuple[Any, ...], list[Call]] = defaultdict(list)
        self.failed: list[Call] = []
        for call in calls(events, "get"):
            if call.succeeded:
                self.gets[_item(call.value)].append(call)
            else:
                self.failed.append(call)
        killed = {event["whose"] for event in events if "whose" in event and event["fault"].startswith("kill")}
        #: Each may have had an item that it gave back when it was connected again.
        self.doubtful = [call for call in self.failed if not _is_honest(call, events)]
        #: Each may have taken an item with it: one that was killed before it could give it back, at most one.
        self.lost = [call for call in self.doubtful if call.error != "Empty"]
        self.lost += {call.who: call for call in self.doubtful if call.error == "Empty" and call.who in killed}.values()

    def unknown(self) -> Iterator[str]:
        """Return the items that were got and never put."""
        for item in self.gets:
            if item not in self.puts:
                yield f"{item} was got, and never put"

    def missing(self, there: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the items whose put was acknowledged, and that are lost."""
        seen = {*self.gets, *there}
        return [item for item, call in self.puts.items() if call.succeeded and item not in seen]


def _is_honest(call: Call, events: list[Event]) -> bool:
    """A get that returned Empty surely had no item.

    One that had sent a request, and had no reply when its time was over, raises Empty too, and
    returns later what it may have got: it lasted until the end of the grace, or its connection
    broke in between.
    """
    if call.error != "Empty" or call.ended is None or call.arg is None or call.ended - call.begun >= call.arg + GRACE_S:
        return False
    return not any(
        event["who"] == call.who and "state" in event and call.begun <= event["t"] <= call.ended + HEARD_S
        for event in events
    )


def queue(events: list[Event]) -> Iterator[str]:
    """At most once, nothing acknowledged is lost but by a get that did not end well, first in first out."""
    queued = Queued(events)
    yield from queued.unknown()
    for item, gets in queued.gets.items():
        if len(gets) > 1:
            yield f"{item} was got {len(gets)} times: {gets}"
    missing = queued.missing(())
    if len(missing) > len(queued.lost):
        yield f"{len(missing)} items are lost, {missing[:5]}, and only {len(queued.lost)} gets did not end well"
    yield from disorder(queued)


def disorder(queued: Queued) -> Iterator[str]:
    """An item put after another one's put had ended was got, and only then a get of the other one
    started.

    Not if a get without a result may have had the other one, and returned it, in between: a
    restored item has its old place, but a getter that comes before that sees what was behind it.
    """
    got = [(gets[0], queued.puts[item], item) for item, gets in queued.gets.items() if item in queued.puts]
    by_end = sorted(got, key=lambda one: one[0].ended or 0.0)
    before, latest = 0, None  # of what was got before the present one was asked for, the one that was put last
    for later, put, item in sorted(got, key=lambda one: one[0].begun):
        while (by_end[before][0].ended or 0.0) < later.begun:
            latest = max((latest, by_end[before]), key=lambda one: one[1].begun if one else 0.0)
            before += 1
        put_first = latest is not None and put.succeeded and (put.ended or 0.0) < latest[1].begun
        if latest and put_first and not _on_its_way(queued.doubtful, put.begun, later.begun):
            yield f"{latest[2]} was got before {item}, which was put first"


def _on_its_way(failed: list[Call], since: float, until: float) -> bool:
    return any(one.begun < until and (one.ended or until) > since for one in failed)


def joinable(events: list[Event]) -> Iterator[str]:
    """At least once; done once; what is done is not delivered again."""
    queued = Queued(events)
    yield from queued.unknown()
    done: dict[tuple[Any, ...], list[Call]] = defaultdict(list)
    for call in calls(events, "done"):
        done[_item(call.arg)].append(call)
    for item, ends in done.items():
        succeeded = [call for call in ends if call.succeeded]
        if len(succeeded) > 1:
            yield f"{item} was done {len(succeeded)} times: {succeeded}"
        for call in succeeded:
            for get in queued.gets.get(item, ()):
                if call.ended is not None and get.begun > call.ended:
                    yield f"{item} was done at {call.ended:.3f} and delivered again at {get.begun:.3f}"
    for item, put in queued.puts.items():
        if put.succeeded and not done.get(item):
            yield f"{item} was put, and nobody has ever begun to say that it is done"


# ---- barrier


MAX_WAIT_S = 120.0
"""No call waits longer, or counts longer after it gave up."""


def barrier(events: list[Event], parties: int) -> Iterator[str]:
    """A party that passes has met the required number of others, each with another index; a call that
    gave up has broken the barrier.

    Another party may be one that gave up, or was killed. A party that is cut off cannot delete its
    znode: it counts until its session has ended, or it is connected again, which is before any
    later call of its process succeeds. The others cannot know better.
    """
    waits = sorted(_standing(calls(events, "wait", "look", "reset")), key=lambda call: call.begun)
    begun = [call.begun for call in waits]
    for one in waits:
        if not one.succeeded:
            continue
        near = waits[bisect_left(begun, one.begun - MAX_WAIT_S) : bisect_left(begun, one.ended or 0.0)]
        met = [other for other in near if other.who != one.who and one.meets(other)]
        numbers = {other.value for other in met if other.succeeded} - {one.value}
        unknown = len({other.who for other in met if not other.succeeded})
        if len(numbers & set(range(parties))) + unknown < parties - 1 or one.value not in range(parties):
            yield f"{one} has passed, and met only {sorted(numbers)}"
    yield from whole(events)


def _standing(all: list[Call]) -> Iterator[Call]:
    """Return the waits; a call that gave up counts until a later call of its process has succeeded."""
    heard: dict[str, float | None] = {}
    for call in reversed(all):
        if call.name == "wait":
            yield call if call.succeeded else replace(call, ended=heard.get(call.who))
        if call.succeeded:
            heard[call.who] = call.ended


def whole(events: list[Event]) -> Iterator[str]:
    """A call that gave up a generation that it knew has broken it, even if it was cut off: when it
    looks again, the same generation cannot be intact.

    (``wait`` is called with the known generation; ``look`` returns whether it is broken, and its
    number. Only the end of a generation repairs it.)
    """
    given_up: dict[tuple[str, int], Call] = {}
    for call in calls(events, "wait", "look"):
        if call.name == "wait" and call.error == "BrokenBarrierError" and call.arg is not None:
            given_up[call.who, call.arg] = call
        elif call.name == "look" and call.succeeded:
            broken, generation = call.value
            if not broken and (call.who, generation) in given_up:
                yield f"{given_up[call.who, generation]} gave up, and the barrier is whole at {call.ended}"


# ---- transactions


def transaction(events: list[Event], sites: Iterable[str]) -> Iterator[str]:
    """All that learn the decision on a transaction learn the same; a commit requires the yes of every
    site.
    """
    told: dict[str, set[str]] = defaultdict(set)
    votes: dict[str, dict[str, bool]] = defaultdict(dict)
    for event in events:
        if "told" in event:
            told[event["what"]].add(event["told"])
        if "vote" in event:
            votes[event["what"]][event["site"]] = event["vote"]
    for call in calls(events, "decide"):
        if call.succeeded:
            told[call.arg].add("commit" if call.value else "abort")
    for what, decisions in told.items():
        if len(decisions) > 1:
            yield f"{what} was {' and '.join(sorted(decisions))}"
        if "commit" in decisions:
            against = [site for site in sites if not votes[what].get(site)]
            if against:
                yield f"{what} was committed without the yes of {', '.join(against)}"


# ---- deadlines

PROMISED_LATE_S = 0.5
"""So late a call may end at most, and no later than that by how late its process is anyway."""


def lateness(events: Iterable[Event]) -> Iterator[tuple[float, Call]]:
    """For each call with a timeout that has ended: its delay beyond the timeout, less the delay of
    something without a server in the same process at that time.
    """
    events = list(events)
    controls: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if "control" in event:
            controls[event["who"]].append(event)
    for call in calls(events, *{event["call"] for event in events if "within" in event}):
        if call.within is not None and call.ended is not None:
            near = (each for each in controls[call.who] if each["from"] < call.ended and each["t"] > call.begun)
            late = call.ended - call.begun - call.within
            yield late - max((each["control"] for each in near), default=0.0), call


def unpunctual(events: Iterable[Event]) -> Iterator[str]:
    """A call ended later than is promised, whatever was broken."""
    for late, call in lateness(events):
        if late > PROMISED_LATE_S:
            yield f"{call} ended {late:.3f} s late"


# ---- all


def surprises(events: Iterable[Event]) -> Iterator[str]:
    """Errors that nobody should ever see."""
    for event in events:
        if event.get("error") not in (None, *EXPECTED_ERRORS):
            yield f"{event['who']} at {event['t']:.3f}: {event['error']}: {event.get('text', '')}"


def idle(events: list[Event], alive: Iterable[str]) -> Iterator[str]:
    """Of who lived to the end nobody got anything done when all was well again."""
    calm = next((event["t"] for event in events if event.get("fault") == "calm"), None)
    if calm is None:
        return
    for who in alive:
        mine = [event for event in events if event["who"] == who and event["t"] > calm]
        if not any("end" in event and event.get("error") in (None, "Empty", "BrokenBarrierError") for event in mine):
            yield f"{who} got nothing done after all was well again; its last word: {mine[-1:]}"


CHECKS: Mapping[str, Any] = {
    "lock": lock,
    "rlock": rlock,
    "shared_lock": shared_lock,
    "election": lock,
    "nothing": lock,
    "semaphore": lambda events: semaphore(events, 2),
    "queue": queue,
    "joinable": joinable,
    "barrier": lambda events: barrier(events, 3),
    "double_barrier": lambda events: double_barrier(events, 3),
    "event": flag,
    "condition": lambda events: itertools.chain(lock(events), condition(events)),
    "transaction": lambda events: transaction(events, ("a", "b")),
}


def violations(primitive: str, events: list[Event], alive: Iterable[str] = ()) -> list[str]:
    """All that is wrong."""
    return [*CHECKS[primitive](events), *surprises(events), *unpunctual(events), *idle(events, alive)]
