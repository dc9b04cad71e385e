"""The work of processes under chaos, a step at a time, with one object of each kind.

A step ends by itself, whatever breaks, because each waiting call has a timeout.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from chaos.roles import Role, between, calling, having

from distsync import (
    Barrier,
    BrokenBarrierError,
    Condition,
    DoubleBarrier,
    Empty,
    Event,
    JoinableQueue,
    Lock,
    Queue,
    RLock,
    Semaphore,
    SharedLock,
    Transaction,
)
from distsync._objects.base import current_owner
from distsync.recipes import Election

if TYPE_CHECKING:
    from chaos.worker import Desk

PATIENCE_S = 3.0
GET_S = DECIDE_S = 1.0
WAIT_S = 1.5
"""Time-outs of calls."""

STAY_S = 3600.0

SITES = ("a", "b")


class Workload:
    """``role`` counts the processes that do the same."""

    #: How many processes do it, and which of them must get something done when all is well.
    workers: ClassVar[int] = 4

    #: What a process of it may be doing when it is struck.
    roles: ClassVar[Mapping[str, Role]] = {}

    def __init__(self, desk: Desk, role: int) -> None:
        self.desk, self.role = desk, role
        self.number = 0
        self.begin()

    def begin(self) -> None:
        """Its objects."""
        raise NotImplementedError

    def step(self) -> None:
        """It does its work once."""
        raise NotImplementedError

    def end(self) -> None:
        """It is about to end in good order."""

    def rest(self, most: float) -> None:
        time.sleep(self.desk.dice.random() * most)

    def next_item(self) -> list[Any]:
        self.number += 1
        return [self.desk.who, self.number]


class Holding(Workload):
    """Holds, claims so all the time, and releases."""

    roles = {"holder": having("acquire"), "waiter": calling("acquire")}
    held: Any
    #: The call by which it gets hold.
    asking = "acquire"
    patience_s: ClassVar[float] = PATIENCE_S

    def stay_s(self) -> float:
        """How long it holds this time."""
        return self.desk.dice.choice((0.0, 0.05, 0.05, 1.0)) * self.desk.dice.random()

    def step(self) -> None:
        within = self.patience_s
        if not self.desk.call(self.asking, lambda: self.held.acquire(timeout=within), within=within):
            return
        try:
            self.stay()
        finally:
            self.desk.call("release", self.held.release)
        self.rest(0.02)

    def stay(self, **of: Any) -> None:
        """It says that it holds, as long as it does, for a while."""
        token = int(self.held.fencing_token)
        until = time.monotonic() + self.stay_s()
        while self.desk.claim(lambda: self.held.held, token, **of) and time.monotonic() < until:
            time.sleep(self.desk.poll_s)

    def let_go(self, held: Any) -> None:
        """What it was about to release, or had just acquired, when it was interrupted between two steps."""
        while held._is_owned():
            self.desk.call("release", held.release)


class HoldingLock(Holding):
    def begin(self) -> None:
        self.held = Lock(name="chaos")


class HoldingTwice(Holding):
    """It holds, holds twice, and once again."""

    roles = {"holder": having("acquire", "again"), "waiter": calling("acquire")}

    def begin(self) -> None:
        self.held = RLock(name="chaos")

    def step(self) -> None:
        self.let_go(self.held)
        super().step()

    def stay(self, **of: Any) -> None:
        super().stay()
        if self.desk.call("again", self.again, within=PATIENCE_S):
            try:
                super().stay()
            finally:
                self.desk.call("release", self.held.release, "inner")
            super().stay()

    def again(self) -> Any:
        """The token that it has then."""
        return self.held.acquire(timeout=PATIENCE_S) and int(self.held.fencing_token)


class Sharing(Holding):
    """It reads, or at times writes."""

    roles = {"writer": having("write"), "reader": having("read"), "waiter": calling("write", "read")}

    def begin(self) -> None:
        lock = SharedLock(name="chaos")
        self.sides: dict[str, Any] = {"read": lock.reader, "write": lock.writer}

    def step(self) -> None:
        for side in self.sides.values():
            self.let_go(side)
        self.asking = self.desk.dice.choice(("read", "read", "write"))
        self.held = self.sides[self.asking]
        super().step()

    def stay(self, **of: Any) -> None:
        super().stay(side=self.asking)


class Notifying(Holding):
    """Of two one waits for the other, both with the lock."""

    roles = {"holder": having("acquire"), "waiter": calling("wait")}

    def begin(self) -> None:
        self.held = RLock(name="chaos")
        self.changed = Condition(self.held, name="chaos")

    def step(self) -> None:
        self.let_go(self.held)
        super().step()
        if not self.role % 2:  # so rarely that not all waiters are notified
            self.rest(self.desk.dice.choice((0.1, 3.0)))

    def stay(self, **of: Any) -> None:
        super().stay()
        if self.role % 2:
            self.desk.call("wait", lambda: self.changed.wait(WAIT_S))  # and then for the lock, however long
            super().stay()
        else:
            count = self.desk.dice.choice((1, 2))
            self.desk.call("notify", lambda: self.changed.notify(count), count)


class HoldingSemaphore(Holding):
    def begin(self) -> None:
        self.held = Semaphore(2, name="chaos")


class Leading(Holding):
    roles = {"leader": having("acquire"), "candidate": calling("acquire")}

    def begin(self) -> None:
        self.held = Election(self.desk.who, name="chaos")


class Everybody:
    """An object that is no lock: a run with it must be refused."""

    held = True
    fencing_token = 1

    def acquire(self, timeout: float) -> bool:
        return True

    def release(self) -> None:
        pass


class HoldingNothing(Holding):
    def begin(self) -> None:
        self.held = Everybody()


class Passing(Workload):
    """Of two one puts, the other one gets."""

    roles = {"producer": calling("put"), "consumer": calling("get")}

    def begin(self) -> None:
        self.queue: Any = Queue(name="chaos")

    def step(self) -> None:
        if self.role % 2:
            self.get()
        else:
            item = self.next_item()
            self.desk.call("put", lambda: self.queue.put(item, timeout=PATIENCE_S) and None, item, within=PATIENCE_S)
            self.rest(0.05)

    def get(self) -> None:
        self.desk.call("get", lambda: self.queue.get(timeout=GET_S), GET_S, within=GET_S)


class Working(Passing):
    """A getter has the item until it acknowledges it."""

    roles = {"producer": calling("put"), "consumer": having("get")}

    def begin(self) -> None:
        self.queue = JoinableQueue(name="chaos")

    def get(self) -> None:
        delivery: list[Any] = []

        def claim() -> Any:
            delivery.append(self.queue.claim(timeout=GET_S))
            return delivery[0].item

        item = self.desk.call("get", claim, GET_S, within=GET_S)
        try:
            self.rest(self.desk.dice.choice((0.0, 0.02, 0.5)))
        finally:
            self.desk.call("done", delivery[0].done, item)


class Meeting(Workload):
    """Three of four meet; one that finds it broken repairs it."""

    roles = {"waiter": calling("wait")}

    def begin(self) -> None:
        self.barrier = Barrier(3, name="chaos")

    def step(self) -> None:
        try:
            self.desk.call("wait", lambda: self.barrier.wait(WAIT_S), self.generation, within=WAIT_S)
        except BrokenBarrierError:
            self.rest(0.2)
            broken, _ = self.desk.call("look", lambda: (self.barrier.broken, self.generation))
            if broken:
                self.desk.call("reset", self.barrier.reset)
        self.rest(0.02)

    @property
    def generation(self) -> int:
        """The latest that this process has seen."""
        return self.barrier._core.generation


class Signalling(Workload):
    """Of two one sets and clears the flag, the other one waits for it; both look."""

    roles = {"setter": calling("set", "clear"), "waiter": calling("wait")}

    def begin(self) -> None:
        self.flag = Event(name="chaos")

    def step(self) -> None:
        if self.role % 2:
            self.desk.call("wait", lambda: self.flag.wait(PATIENCE_S), within=PATIENCE_S)
            self.look()
        else:
            self.desk.call("set", self.flag.set)
            self.look()
            self.desk.call("clear", self.flag.clear)
            self.look()

    def look(self) -> None:
        self.desk.call("is_set", self.flag.is_set)
        self.rest(0.05 if self.role % 2 else self.desk.dice.choice((0.05, 0.05, 0.3, 6.0)))


class Gathering(Workload):
    """Three of four begin together, and end together."""

    roles = {"waiter": calling("enter"), "insider": having("enter")}

    def begin(self) -> None:
        self.barrier = DoubleBarrier(3, name="chaos")

    def step(self) -> None:
        if self.group() or self.desk.call("enter", self.enter, within=WAIT_S):
            self.rest(self.desk.dice.choice((0.0, 0.05, 1.0)))
            self.desk.call("leave", lambda: self.barrier.leave(WAIT_S), within=WAIT_S)
        self.rest(0.02)

    def enter(self) -> Any:
        return self.barrier.enter(WAIT_S) and self.group()

    def group(self) -> Any:
        """All who are inside with it, by the names of their znodes; False: it is not inside."""
        stay = self.barrier._core.visits.get(current_owner())
        return stay is not None and list(stay.group)


class Deciding(Workload):
    """Two sites, and two processes that begin transactions. One that is interrupted while it decides
    does so again: no other would.
    """

    roles = {"coordinator": between("begin", "decide"), "site": calling("take_part")}
    undecided: str | None = None

    def begin(self) -> None:
        self.order = Transaction(SITES, name="chaos")
        if self.role < len(SITES):
            self.site = SITES[self.role]
            self.part = self.order.participant(self.site, self.prepare, self.commit, self.abort)

    def step(self) -> None:
        if self.role < len(SITES):
            self.desk.call("take_part", lambda: self.part.take_part(DECIDE_S), within=DECIDE_S)
            return
        if self.undecided is None:
            what = "-".join(map(str, self.next_item()))
            self.desk.call("begin", lambda: self.begin_one(what), what, within=PATIENCE_S)
        try:
            self.desk.call("decide", lambda: self.order.decide(DECIDE_S), self.undecided, within=DECIDE_S)
        except Exception:
            self.undecided = None
            raise
        self.undecided = None

    def begin_one(self, what: str) -> str:
        id = self.order.begin(what, PATIENCE_S)
        self.undecided = what
        return id

    def prepare(self, what: str) -> bool:
        vote = self.desk.dice.random() < 0.8
        self.desk.recorder.write(what=what, site=self.site, vote=vote)
        return vote

    def commit(self, what: str) -> None:
        self.desk.recorder.write(what=what, told="commit")

    def abort(self, what: str) -> None:
        self.desk.recorder.write(what=what, told="abort")

    def end(self) -> None:
        if self.role < len(SITES):
            self.part.leave()


WORKLOADS: dict[str, type[Workload]] = {
    "lock": HoldingLock,
    "rlock": HoldingTwice,
    "shared_lock": Sharing,
    "semaphore": HoldingSemaphore,
    "election": Leading,
    "queue": Passing,
    "joinable": Working,
    "barrier": Meeting,
    "double_barrier": Gathering,
    "event": Signalling,
    "condition": Notifying,
    "transaction": Deciding,
}
PROOFS: dict[str, type[Workload]] = {"nothing": HoldingNothing}
"""What shows that a run can fail."""


# ---- until it is killed


class Staying(Holding):
    """It waits as long as it takes, and holds as long as it lives."""

    patience_s = STAY_S

    def stay_s(self) -> float:
        return STAY_S


class StayingLock(Staying, HoldingLock):
    pass


class StayingSemaphore(Staying, HoldingSemaphore):
    pass


class StayingLeader(Staying, Leading):
    roles = {"holder": having("acquire"), "waiter": calling("acquire")}


class StayingWorker(Workload):
    """The first one puts an item; of the others one has it as long as it lives."""

    roles = {"holder": having("get"), "waiter": calling("get")}

    def begin(self) -> None:
        self.queue: Any = JoinableQueue(name="chaos")

    def step(self) -> None:
        if self.role == 0:
            self.desk.call("put", lambda: self.queue.put("item") and None, "item")
        else:
            self.desk.call("get", lambda: self.queue.claim(timeout=STAY_S).item)
        self.desk.stopping.wait(STAY_S)


STAYING: dict[str, type[Workload]] = {
    "Lock": StayingLock,
    "Semaphore": StayingSemaphore,
    "Election": StayingLeader,
    "JoinableQueue": StayingWorker,
}
"""The workloads with a takeover after the holder was killed: takeover.py."""

ALL = {**WORKLOADS, **PROOFS, **STAYING}


def drain(desk: Desk, workload: str) -> None:
    """Get and acknowledge what is left in a queue."""
    if workload not in ("queue", "joinable"):
        return
    last = WORKLOADS[workload](desk, 1)
    while True:
        try:
            last.step()
        except Empty:
            return
