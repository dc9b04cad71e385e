"""The checker of histories refuses histories that are wrong, each for its reason, and takes those that are right."""

from __future__ import annotations

from typing import Any

import pytest
from chaos.history import CONFIRMED, Event, Recorder, calls, read
from chaos.model import CHECKS, violations
from chaos.runs import injected_faults
from chaos.soak import grown, table

INF = float("inf")
ABC = ["a", "b", "c"]


class Tale:
    """Builds a history."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._id = 0

    def claim(self, who: str, token: int, *times: float, **of: Any) -> Tale:
        self.events += [{"t": t, "from": t, "who": who, "claim": token, **of} for t in times]
        return self

    def reads(self, who: str, token: int, *times: float) -> Tale:
        return self.claim(who, token, *times, side="read")

    def writes(self, who: str, token: int, *times: float) -> Tale:
        return self.claim(who, token, *times, side="write")

    def twice(self, who: str, token: int, at: float, inner: Any = None, last: Any = None) -> Tale:
        """Hold from ``at`` on, acquire again with this token, and release twice, two seconds later."""
        self.call(who, "acquire", at - 0.1, at, value=True).claim(who, 1, at + 0.1, at + 0.2)
        self.call(who, "again", at + 0.3, at + 0.4, value=token)
        self.call(who, "release", at + 1, at + 1.1, arg="inner", error=inner)
        return self.call(who, "release", at + 2, at + 2.1, error=last)

    def call(
        self,
        who: str,
        name: str,
        begun: float,
        ended: float,
        *,
        arg: Any = None,
        value: Any = None,
        error: Any = None,
        within: float = INF,
    ) -> Tale:
        self._id += 1
        self.events.append({"t": begun, "who": who, "call": name, "id": self._id, "arg": arg, "within": within})
        if ended < INF:
            self.events.append({"t": ended, "who": who, "end": self._id, "value": value, "error": error})
        return self

    def put(self, who: str, number: int, begun: float, ended: float, error: Any = None) -> Tale:
        return self.call(who, "put", begun, ended, arg=[who, number], error=error)

    def get(self, who: str, item: Any, begun: float, ended: float, error: Any = None) -> Tale:
        return self.call(who, "get", begun, ended, arg=1.0, value=item, error=error)

    def done(self, who: str, item: Any, begun: float, ended: float, error: Any = None) -> Tale:
        return self.call(who, "done", begun, ended, arg=item, error=error)

    def wait(self, who: str, begun: float, ended: float, value: Any = None, error: Any = None) -> Tale:
        return self.call(who, "wait", begun, ended, value=value, error=error)

    def set(self, who: str, begun: float, ended: float, error: Any = None) -> Tale:
        return self.call(who, "set", begun, ended, error=error)

    def clear(self, who: str, begun: float, ended: float, error: Any = None) -> Tale:
        return self.call(who, "clear", begun, ended, error=error)

    def is_set(self, who: str, begun: float, ended: float, value: bool) -> Tale:
        return self.call(who, "is_set", begun, ended, value=value)

    def notify(self, who: str, count: int, begun: float, ended: float) -> Tale:
        return self.call(who, "notify", begun, ended, arg=count)

    def enter(self, who: str, begun: float, ended: float, value: Any = ABC) -> Tale:
        return self.call(who, "enter", begun, ended, value=value)

    def leave(self, who: str, begun: float, ended: float, value: Any = True, error: Any = None) -> Tale:
        return self.call(who, "leave", begun, ended, value=value, error=error)

    def on_ensemble(self) -> Tale:
        self.events.append({"t": 0.0, "who": "chaos", "servers": "ensemble", "session": 2.0})
        return self

    def gives_up(self, who: str, generation: int, begun: float, ended: float) -> Tale:
        return self.call(who, "wait", begun, ended, arg=generation, error="BrokenBarrierError")

    def look(self, who: str, begun: float, ended: float, broken: bool, generation: int) -> Tale:
        return self.call(who, "look", begun, ended, value=[broken, generation])

    def state(self, who: str, at: float, state: str) -> Tale:
        self.events.append({"t": at, "who": who, "state": state})
        return self

    def control(self, who: str, since: float, until: float, late: float) -> Tale:
        self.events.append({"t": until, "from": since, "who": who, "control": late})
        return self

    def expire(self, who: str, asked: float, confirmed: float = INF) -> Tale:
        self.events.append({"t": asked, "who": "chaos", "fault": "expire", "whose": who})
        if confirmed < INF:
            self.events.append({"t": confirmed, "who": "chaos", "fault": CONFIRMED, "of": who, "lasts": 2.0})
        return self

    def kill(self, who: str, at: float) -> Tale:
        self.events.append({"t": at, "who": "chaos", "fault": "kill", "whose": who})
        return self

    def vote(self, what: str, site: str, vote: bool) -> Tale:
        self.events.append({"t": 1.0, "who": site, "vote": vote, "site": site, "what": what})
        return self

    def told(self, what: str, who: str, decision: str) -> Tale:
        self.events.append({"t": 2.0, "who": who, "told": decision, "what": what})
        return self


A1, A2 = ["a", 1], ["a", 2]

GOOD: dict[str, tuple[str, Tale]] = {
    "one after the other": ("lock", Tale().claim("x", 1, 1, 2).claim("y", 5, 3, 4)),
    "silent while another one holds": ("lock", Tale().claim("x", 1, 1, 2).claim("y", 5, 2.5, 9).claim("x", 9, 10, 11)),
    "two permits": ("semaphore", Tale().claim("x", 1, 1, 4).claim("y", 2, 2, 5).claim("z", 3, 4.5, 9)),
    "put and got": ("queue", Tale().put("a", 1, 1, 2).get("b", A1, 1, 3)),
    "not acknowledged and not there": ("queue", Tale().put("a", 1, 1, 2, "OutcomeUnknownError")),
    "not acknowledged and there": ("queue", Tale().put("a", 1, 1, INF).get("b", A1, 3, 4)),
    "got by a killed process": ("queue", Tale().put("a", 1, 1, 2).get("b", None, 3, INF)),
    "puts that overlap come in any order": (
        "queue",
        Tale().put("a", 1, 1, 4).put("a", 2, 3, 5).get("b", A2, 6, 7).get("b", A1, 8, 9),
    ),
    "an item that came back": (
        "queue",
        Tale().put("a", 1, 1, 2).put("a", 2, 3, 4).get("c", None, 5, 9, "KeyboardInterrupt").get("b", A2, 6, 7)
        .get("b", A1, 8, 9.5),
    ),
    "an item returned by a getter that had waited until its deadline": (
        "queue",
        Tale().put("a", 1, 1, 2).put("a", 2, 3, 4).get("c", None, 2.5, 3.9, "Empty").get("b", A2, 6, 7)
        .get("b", A1, 8, 9.5),
    ),
    "an item returned by a getter that was cut off": (
        "queue",
        Tale().put("a", 1, 1, 2).put("a", 2, 3, 4).get("c", None, 2.5, 3.5, "Empty").state("c", 3.6, "suspended")
        .get("b", A2, 6, 7).get("b", A1, 8, 9.5),
    ),
    "killed before it could give back": (
        "queue",
        Tale().put("a", 1, 1, 2).get("b", None, 3, 4, "Empty").state("b", 3.5, "suspended").kill("b", 4.1),
    ),
    "delivered again to another one": (
        "joinable",
        Tale().put("a", 1, 1, 2).get("b", A1, 3, 4).get("c", A1, 5, 6).done("b", A1, 6, 7, "LockLostError")
        .done("c", A1, 7, 8),
    ),
    "all have met": ("barrier", Tale().wait("x", 1, 5, 0).wait("y", 2, 5, 1).wait("z", 3, 4, 2)),
    "one was killed as it passed": ("barrier", Tale().wait("x", 1, 5, 0).wait("y", 2, 5, 1).wait("z", 3, INF)),
    "one had just given up": (
        "barrier", Tale().wait("x", 1, 2, error="BrokenBarrierError").wait("y", 3, 5, 1).wait("z", 3, 4, 2),
    ),
    "one who gave up stands until it is heard again": (
        "barrier", Tale().gives_up("x", 0, 1, 2).wait("y", 3, 5, 1).wait("z", 3, 4, 2).look("x", 2.1, 4.5, False, 1),
    ),
    "broken by a call that gave up": ("barrier", Tale().gives_up("x", 3, 1, 2).look("x", 2, 3, True, 3)),
    "broken by a call that gave up, and repaired": ("barrier", Tale().gives_up("x", 3, 1, 2).look("x", 2, 3, False, 4)),
    "given up by a call that knew an earlier one": ("barrier", Tale().gives_up("x", 2, 1, 2).look("x", 2, 3, False, 3)),
    "broken for all": ("barrier", Tale().wait("x", 1, 5, error="BrokenBarrierError")),
    "taken twice": ("rlock", Tale().twice("x", 1, 1).claim("x", 1, 1.2, 2.9).claim("y", 5, 3.2, 4)),
    "taken twice, and lost": ("rlock", Tale().twice("x", 1, 1, None, "LockLostError")),
    "taken again when it was lost": ("rlock", Tale().twice("x", 7, 1, None, "NotHeldError")),
    "readers together": ("shared_lock", Tale().reads("x", 1, 1, 4).reads("y", 2, 2, 5).writes("z", 3, 6, 7)),
    "readers come in any order": ("shared_lock", Tale().reads("x", 2, 1, 2).reads("y", 1, 3, 4)),
    "set and seen": (
        "event", Tale().set("x", 1, 2).is_set("x", 3, 4, True).wait("y", 3, 4, True).is_set("z", 8, 9, True),
    ),
    "set by a killed process": ("event", Tale().set("x", 1, INF).wait("y", 3, 4, True).is_set("y", 8, 9, False)),
    "set and cleared": (
        "event", Tale().set("x", 1, 2).clear("y", 3, 4).wait("z", 5, 9, False).is_set("y", 9, 10, False),
    ),
    "a watch has kept it for a while": ("event", Tale().set("x", 1, 2).clear("x", 3, 4).is_set("y", 6, 7, True)),
    "told by a server that lags": (
        "event", Tale().on_ensemble().set("x", 1, 2).clear("x", 3, 4).wait("y", 6, 7, True),
    ),
    "cut off from what was set": (
        "event", Tale().set("x", 1, 2).wait("y", 1, 5, False).state("y", 5.2, "suspended"),
    ),
    "set shortly before": ("event", Tale().set("x", 3, 4).wait("y", 1, 5, False)),
    "notified": ("condition", Tale().wait("x", 1, 5, True).wait("y", 1, 5, True).notify("z", 2, 2, 3)),
    "notified by a killed process": ("condition", Tale().wait("x", 1, 5, True).notify("z", 1, 2, INF)),
    "successor of a killed waiter": (
        "condition", Tale().wait("x", 1, INF).notify("z", 1, 2, 3).wait("y", 4, 6, True),
    ),
    "woken by the end of its session": ("condition", Tale().wait("x", 1, 5, True).state("x", 4, "lost")),
    "all in and all out": (
        "double_barrier",
        Tale().enter("x", 1, 4).enter("y", 2, 4).enter("z", 3, 4).leave("x", 5, 8).leave("y", 6, 8).leave("z", 7, 8),
    ),
    "one was killed inside": (
        "double_barrier", Tale().enter("x", 1, 4).enter("y", 2, 4).enter("z", 3, INF).leave("x", 5, 8).leave("y", 6, 8),
    ),
    "one was too late, as its session had ended": (
        "double_barrier",
        Tale().enter("x", 1, 4).enter("y", 2, 4).enter("z", 3, 4).leave("x", 5, 8).leave("y", 6, 8)
        .leave("z", 9, 10, error="LockLostError"),
    ),
    "one had gone at its deadline": (
        "double_barrier",
        Tale().enter("x", 1, 4).enter("y", 2, 4).enter("z", 3, 4).leave("x", 5, 6, False).leave("y", 7, 8)
        .leave("z", 7, 8),
    ),
    "all agree": (
        "transaction",
        Tale().vote("t", "a", True).vote("t", "b", True).told("t", "a", "commit")
        .call("k", "decide", 1, 3, arg="t", value=True),
    ),
    "did not know yet that its session had ended, which took the servers long": (
        "semaphore",
        Tale().claim("x", 1, 1, 9).claim("y", 2, 1, 9).expire("y", 5, 7.02).claim("z", 3, 7.01, 9),
    ),
    "its session has ended at an unknown time": (
        "lock", Tale().claim("x", 1, 1, 9).expire("x", 5).claim("y", 2, 8, 10),
    ),
    "late by half a second": ("lock", Tale().call("x", "acquire", 1, 4.4, value=False, within=3.0)),
    "late as all of its process was": (
        "lock", Tale().control("x", 3.5, 6.5, 3.0).call("x", "acquire", 1, 7, value=False, within=3.0),
    ),
    "aborted by a no": ("transaction", Tale().vote("t", "a", True).vote("t", "b", False).told("t", "a", "abort")),
}  # fmt: skip

BAD: dict[str, tuple[str, Tale, str]] = {
    "two hold at a time": ("lock", Tale().claim("x", 1, 1, 3).claim("y", 5, 2, 4), "2 hold at 2.000"),
    "said so again afterwards": ("lock", Tale().claim("x", 1, 1, 9).claim("y", 5, 3, 4), "2 hold at 3.000"),
    "a token that is smaller": ("lock", Tale().claim("x", 5, 1, 2).claim("y", 3, 3, 4), "not greater"),
    "a term of two leaders": ("election", Tale().claim("x", 5, 1, 2).claim("y", 5, 3, 4), "was x's and y's"),
    "a third permit": (
        "semaphore", Tale().claim("x", 1, 1, 5).claim("y", 2, 2, 5).claim("z", 3, 3, 5), "3 hold at 3.000",
    ),
    "lost": ("queue", Tale().put("a", 1, 1, 2).get("b", None, 3, 4, "Empty"), "1 items are lost"),
    "more lost than killed": ("queue", Tale().put("a", 1, 1, 2).put("a", 2, 1, 2).get("b", None, 3, INF), "2 items"),
    "got twice": ("queue", Tale().put("a", 1, 1, 2).get("b", A1, 3, 4).get("c", A1, 5, 6), "was got 2 times"),
    "never put": ("queue", Tale().get("b", A1, 3, 4), "never put"),
    "out of order": (
        "queue",
        Tale().put("a", 1, 1, 2).put("a", 2, 3, 4).get("b", A2, 5, 6).get("b", A1, 7, 8),
        "('a', 2) was got before ('a', 1)",
    ),
    "out of order, while a get found nothing": (
        "queue",
        Tale().put("a", 1, 1, 2).put("a", 2, 3, 4).state("c", 1.5, "suspended").get("c", None, 2.5, 3.5, "Empty")
        .get("b", A2, 6, 7).get("b", A1, 8, 9.5),
        "('a', 2) was got before ('a', 1)",
    ),
    "lost by one who was killed when it had found nothing": (
        "queue", Tale().put("a", 1, 1, 2).get("b", None, 3, 4, "Empty").kill("b", 9), "1 items are lost",
    ),
    "never done": ("joinable", Tale().put("a", 1, 1, 2).get("b", A1, 3, 4), "nobody has ever begun"),
    "done twice": (
        "joinable",
        Tale().put("a", 1, 1, 2).get("b", A1, 3, 4).get("c", A1, 3, 4).done("b", A1, 5, 6).done("c", A1, 5, 6),
        "was done 2 times",
    ),
    "delivered when it was done": (
        "joinable", Tale().put("a", 1, 1, 2).get("b", A1, 3, 4).done("b", A1, 5, 6).get("c", A1, 7, 8), "again",
    ),
    "passed alone": ("barrier", Tale().wait("x", 1, 2, 0).wait("y", 3, 4, 1).wait("z", 3, 4, 2), "has passed"),
    "one had given up and returned": (
        "barrier",
        Tale().wait("x", 1, 2, error="BrokenBarrierError").wait("x", 2.5, 2.6, 0).wait("y", 3, 5, 1).wait("z", 3, 4, 2),
        "has passed",
    ),
    "one that had given up was heard before": (
        "barrier",
        Tale().gives_up("x", 0, 1, 2).look("x", 2.1, 2.5, True, 0).wait("y", 3, 5, 1).wait("z", 3, 4, 2),
        "has passed",
    ),
    "one met itself": (
        "barrier", Tale().wait("x", 1, 2, error="SessionLostError").wait("x", 2, 5, 0).wait("y", 3, 5, 1), "passed",
    ),
    "given up, and whole": ("barrier", Tale().gives_up("x", 3, 1, 2).look("x", 2, 3, False, 3), "is whole at"),
    "the same number twice": ("barrier", Tale().wait("x", 1, 5, 0).wait("y", 2, 5, 0).wait("z", 3, 5, 1), "has passed"),
    "a number too high": ("barrier", Tale().wait("x", 1, 5, 0).wait("y", 2, 5, 1).wait("z", 3, 5, 3), "has passed"),
    "two hold what may be taken twice": ("rlock", Tale().claim("x", 1, 1, 3).claim("y", 5, 2, 4), "2 hold at 2.000"),
    "released by the first release": (
        "rlock", Tale().twice("x", 1, 1, None, "NotHeldError"), "released what was taken twice",
    ),
    "let in by the first release": (
        "rlock", Tale().twice("x", 1, 1).claim("x", 1, 2.9).claim("y", 5, 2.2, 4), "2 hold at 2.200",
    ),
    "two write": ("shared_lock", Tale().writes("x", 1, 1, 3).writes("y", 5, 2, 4), "2 hold at 2.000"),
    "one reads while another one writes": (
        "shared_lock", Tale().writes("x", 1, 1, 3).reads("y", 5, 2, 4), "reads at 2.000",
    ),
    "one writes while others read": (
        "shared_lock", Tale().reads("x", 1, 1, 5).reads("y", 2, 1, 2).writes("z", 5, 3, 4), "reads at 3.000",
    ),
    "a writer's token that is smaller": (
        "shared_lock", Tale().writes("x", 5, 1, 2).writes("y", 3, 3, 4), "not greater",
    ),
    "a reader's token that is smaller": (
        "shared_lock", Tale().writes("x", 5, 1, 2).reads("y", 3, 3, 4), "not greater",
    ),
    "a writer's token that is smaller than a reader's": (
        "shared_lock", Tale().reads("x", 5, 1, 2).writes("y", 5, 3, 4), "not greater",
    ),
    "set, and not seen": ("event", Tale().set("x", 1, 2).is_set("y", 8, 9, False), "was not told of"),
    "set, and not seen by itself": ("event", Tale().set("x", 1, 2).is_set("x", 3, 4, False), "was not told of"),
    "set before it waited": ("event", Tale().set("x", 1, 2).wait("y", 3, 6, False), "has missed"),
    "set while it waited": ("event", Tale().set("x", 2, 3).wait("y", 1, 6, False), "has missed"),
    "set while another one was cut off": (
        "event", Tale().set("x", 2, 3).state("z", 3, "suspended").wait("y", 1, 6, False), "has missed",
    ),
    "never set": ("event", Tale().wait("y", 1, 2, True).set("x", 3, 4), "saw no set"),
    "cleared before": ("event", Tale().set("x", 1, 2).clear("x", 3, 4).wait("y", 5, 6, True), "had been cleared"),
    "cleared for long": (
        "event", Tale().on_ensemble().set("x", 1, 2).clear("x", 3, 4).wait("y", 8, 9, True), "had been cleared",
    ),
    "cleared by itself": ("event", Tale().set("x", 1, 2).clear("y", 3, 4).is_set("y", 5, 6, True), "had been cleared"),
    "woken by nobody": ("condition", Tale().wait("x", 1, 5, True).notify("z", 1, 6, 7), "1 have woken by 5.000"),
    "two woken where one was notified": (
        "condition", Tale().wait("x", 1, 5, True).wait("y", 1, 6, True).notify("z", 1, 2, 3), "2 have woken by 6.000",
    ),
    "notified before it waited": (
        "condition", Tale().notify("z", 2, 1, 2).wait("x", 3, 5, True), "0 of those who waited were notified",
    ),
    "two hold the lock of a condition": (
        "condition", Tale().claim("x", 1, 1, 3).claim("y", 5, 2, 4), "2 hold at 2.000",
    ),
    "inside before all had come": (
        "double_barrier", Tale().enter("x", 1, 2).enter("y", 1, 4).enter("z", 3, 4), "was inside before",
    ),
    "inside with one too few": ("double_barrier", Tale().enter("x", 1, 4).enter("y", 2, 4), "was inside with 1 others"),
    "one too many inside": (
        "double_barrier", Tale().enter("x", 1, 4).enter("y", 1, 4).enter("z", 1, 4).enter("w", 1, 4), "4 came in as",
    ),
    "out before all had come to their end": (
        "double_barrier",
        Tale().enter("x", 1, 4).enter("y", 2, 4).enter("z", 3, 4).leave("x", 5, 8).leave("y", 6, 8).leave("z", 9, 10),
        "was over before",
    ),
    "two decisions": (
        "transaction",
        Tale().vote("t", "a", True).vote("t", "b", True).told("t", "a", "commit").told("t", "b", "abort"),
        "was abort and commit",
    ),
    "a coordinator who says otherwise": (
        "transaction",
        Tale().vote("t", "a", True).vote("t", "b", True).told("t", "a", "commit")
        .call("k", "decide", 1, 3, arg="t", value=False),
        "was abort and commit",
    ),
    "committed against a no": (
        "transaction", Tale().vote("t", "a", True).vote("t", "b", False).told("t", "a", "commit"), "the yes of b",
    ),
    "committed before a vote": ("transaction", Tale().vote("t", "a", True).told("t", "a", "commit"), "yes of b"),
    "should have known that its session had ended": (
        "lock", Tale().claim("x", 1, 1, 9.1).expire("x", 5, 7).claim("y", 2, 8, 10), "2 hold at 8.000",
    ),
    "another one's session was ended": (
        "lock", Tale().claim("x", 1, 1, 8.5).expire("z", 5, 7).claim("y", 2, 8, 10), "2 hold at 8.000",
    ),
    "late": ("lock", Tale().call("x", "acquire", 1, 4.6, value=False, within=3.0), "ended 0.600 s late"),
    "late, and its process was not": (
        "lock", Tale().control("x", 1, 2, 0.3).call("x", "acquire", 1, 4.9, value=False, within=3.0), "0.600 s late",
    ),
    "late, and another process was": (
        "lock", Tale().control("y", 3, 5, 2.0).call("x", "acquire", 1, 4.6, value=False, within=3.0), "0.600 s late",
    ),
    "an error of ours": ("lock", Tale().call("x", "acquire", 1, 2, error="AttributeError"), "AttributeError"),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_history_that_may_be_is_taken(name: str) -> None:
    primitive, tale = GOOD[name]
    assert violations(primitive, tale.events) == []


@pytest.mark.parametrize("name", BAD)
def test_a_history_that_cannot_be_right_is_refused(name: str) -> None:
    primitive, tale, reason = BAD[name]
    found = violations(primitive, tale.events)
    assert any(reason in one for one in found), found


def test_each_primitive_has_a_history_that_is_refused() -> None:
    assert {primitive for primitive, *_ in BAD.values()} == set(CHECKS) - {"nothing"}


def test_process_that_does_nothing_after_the_repair_is_reported() -> None:
    tale = Tale().call("x", "acquire", 1, 2).call("y", "acquire", 6, 7)
    tale.events.append({"t": 5.0, "who": "chaos", "fault": "calm"})
    (found,) = violations("lock", tale.events, ["x", "y"])
    assert "x got nothing done" in found


def test_a_history_is_read_as_it_was_written_but_for_half_a_line(tmp_path: Any) -> None:
    one, other = Recorder(tmp_path, "one"), Recorder(tmp_path, "other")
    first = one.begin("put", ["one", 1])
    other.begin("get")
    one.end(first, value=None)
    with (tmp_path / "other.jsonl").open("a") as file:
        file.write('{"t": 5, "wh')
    one.close()
    other.close()
    put, get = calls(read(tmp_path), "put", "get")
    assert (put.who, put.arg, put.succeeded, get.ended) == ("one", ["one", 1], True, None)


def test_soak_tells_what_has_grown() -> None:
    before = {"the servers": {"znodes": 100.0, "sessions": 4.0}, "lock0": {"memory": 30.0, "threads": 5.0}}
    after = {"the servers": {"znodes": 300.0, "sessions": 5.0}, "lock0": {"memory": 31.0, "threads": 9.0}}
    assert [text.partition(":")[0] for text in grown(before, after)] == ["znodes of the servers", "threads of lock0"]
    assert "at the start" in table(before, before, after)


def test_only_injected_faults_are_counted_not_their_ends_or_other_notes() -> None:
    notes = ["calm", "server_killed over", "nobody there", "lock-1 has ended by itself", CONFIRMED]
    events = [{"fault": "kill:holder", "whose": "lock-1"}, *({"fault": each} for each in ("server_killed", *notes))]
    assert injected_faults(events) == {"kill:holder": 1, "server_killed": 1}
