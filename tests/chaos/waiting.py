"""Promises of Event, Condition and DoubleBarrier about a history; see model.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import inf

from chaos.history import Call, Event, calls

GRACE_S = 0.3
"""A request that is under way at the deadline of its call is waited for so much longer, and then given up."""

HEARD_S = 0.5
"""So long after its connection has broken a process may write it down."""

FLIGHT = 5.0
"""Maximum delay of a request after its call failed or its process exited, in session timeouts."""

LAG_S = 3.0
"""So old may be what a server of an ensemble tells that has lost its leader: it notices within 10 ticks of 0.2 s."""

KEPT = 2.5
"""Maximum age of a watched copy, in session timeouts: of a process that was suspended, or cut off unnoticed."""


def setting(events: list[Event]) -> tuple[float, float]:
    """How long a session lasts, and by how much a server may be behind."""
    on = next((each for each in events if "servers" in each), {"servers": "embedded", "session": 2.0})
    return float(on["session"]), LAG_S if on["servers"] == "ensemble" else 0.0


def until(call: Call, session: float) -> float:
    """What it has done was done by then."""
    return call.ended if call.succeeded and call.ended else (call.ended or call.begun) + FLIGHT * session


def undisturbed(call: Call, events: list[Event]) -> bool:
    """Its process had its connection, and with that its session, and time, all the while."""
    end = call.ended or inf
    return end < call.begun + GRACE_S + (inf if call.within is None else call.within) and not any(
        "state" in each and each["who"] == call.who and call.begun <= each["t"] <= end + HEARD_S for each in events
    )


# ---- event


def flag(events: list[Event]) -> Iterator[str]:
    """A waiter that returns True got a set that was not cleared; and after a set all see it until it
    is cleared.

    A process sees its own changes at once; those of others when its server, or a watch, reports
    them. A state that lasts as long as a session is seen by its waiters, over a connection that no
    fault breaks.
    """
    session, lag = setting(events)
    sets, clears = ([(each, until(each, session)) for each in calls(events, name)] for name in ("set", "clear"))
    for call in (each for each in calls(events, "wait", "is_set") if each.succeeded):
        ended, waits = call.ended or inf, call.name == "wait"
        age = {call.who: 0.0}
        others = lag if waits else lag + KEPT * session
        if call.value:
            over = [one for one, by in clears if one.succeeded and by + age.get(one.who, others) <= call.begun]
            since = max((one.begun for one in over), default=0.0)
            if not any(one.begun < ended and by > since for one, by in sets):
                yield f"{call} saw no set, or one that had been cleared"
            continue
        for one, by in sets:
            known = by + age.get(one.who, others)
            cleared = min((clear.begun for clear, its in clears if its > one.begun), default=inf)
            if not one.succeeded or known > ended:
                continue
            if not waits and known <= call.begun and cleared > ended:
                yield f"{call} was not told of {one}"
            elif waits and min(cleared, ended) - max(known, call.begun) >= session and undisturbed(call, events):
                yield f"{call} has missed {one}"


# ---- condition


def condition(events: list[Event]) -> Iterator[str]:
    """No more waiters wake than were notified, by what had started before.

    A waiter that lost its session may wake by itself, and the notification of one that was killed,
    or left, wakes another one, at any later time; it counts once.
    """
    session, _ = setting(events)
    waits, signals = list[tuple[Call, float, bool]](), list[tuple[float, int]]()
    for each in calls(events, "wait"):  # until when it may be enqueued: a killed process as long as its session
        calm = each.succeeded and undisturbed(each, events)
        waits.append((each, until(each, session) + (0.0 if calm else FLIGHT * session), calm))
    for each in calls(events, "notify"):
        there = sum(one.begun < until(each, session) and gone > each.begun for one, gone, _ in waits)
        signals.append((each.begun, min(each.arg, there)))
    woken = sorted(each.ended or inf for each, _, calm in waits if calm and each.value)
    for count, at in enumerate(woken, start=1):
        given = sum(n for begun, n in signals if begun < at)
        if count > given:
            yield f"{count} have woken by {at:.3f}, and {given} of those who waited were notified"
            return


# ---- double barrier


def double_barrier(events: list[Event], parties: int) -> Iterator[str]:
    """No member is inside before all have started to enter, none has left before all have started to
    leave.

    A successful ``enter`` reports its group. Others than those may be among them: a
    member that was killed, gave up, or lost its session at that moment, and counts until its
    session ends, or it reconnects. A member that left late because its session had ended learns
    that from its ``leave``.
    """
    all = calls(events, "enter", "leave")
    meetings: dict[tuple[str, ...], list[Call]] = defaultdict(list)
    for call in all:
        if call.name == "enter" and call.succeeded and call.value:
            meetings[tuple(call.value)].append(call)
    doubtful = list(_given_up(all))
    for group, inside in meetings.items():
        if len(group) != parties or len(inside) > parties:
            yield f"{len(inside)} came in as {group}, {parties} should"
        first, last = min(inside, key=lambda one: one.ended or inf), max(inside, key=lambda one: one.begun)
        if last.begun > (first.ended or inf):
            yield f"{first} was inside before {last} began to enter"
        unknown = {one.who for one in doubtful if first.meets(one)} - {one.who for one in inside}
        if len(inside) + len(unknown) < parties:
            yield f"{first} was inside with {len(inside) - 1 + len(unknown)} others"
        went = [left for one in inside if (left := _left(one, all)) and left.succeeded and left.value]
        done = min(went, key=lambda one: one.ended or inf, default=None)
        for one in went:
            if done and one.begun > (done.ended or inf):
                yield f"{done} was over before {one} began"


def _given_up(all: list[Call]) -> Iterator[Call]:
    """Return those that started to enter and did not come in, as long as they may count."""
    heard: dict[str, float | None] = {}
    for call in reversed(all):
        came = call.succeeded and bool(call.value)
        if call.name == "enter" and not came:
            yield Call(call.who, call.name, call.arg, call.begun, heard.get(call.who))
        if came:
            heard[call.who] = call.ended


def _left(entered: Call, all: list[Call]) -> Call | None:
    return next(
        (one for one in all if one.name == "leave" and one.who == entered.who and one.begun > entered.begun), None
    )
