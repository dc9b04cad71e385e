"""JoinableQueue and Delivery.

Rules for this file: no znode; each method checks its arguments and runs one protocol.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from queue import Empty
from typing import TYPE_CHECKING, Any, Generic

from distsync._client.contender_info import describe
from distsync._objects.queues import Item, Queue
from distsync._objects.validation import validate_timeout
from distsync._protocols.queues.batch_limits import BATCH
from distsync._protocols.queues.bulk import Progress, put_many
from distsync._protocols.queues.claim_layout import ClaimedItem as Claimed
from distsync._protocols.queues.claim_layout import ItemHeader
from distsync._protocols.queues.claim_queue import JoinableCore
from distsync.errors import DistsyncError, PayloadRefusedError, UsageError

if TYPE_CHECKING:
    from distsync._client.client import Client

__all__ = ["Delivery", "JoinableQueue"]

_NONE: Any = object()
_ENDED = "this delivery was ended before"
_MAX_DELAY_S = 10 * 366 * 86_400.0

_Ending = Callable[[JoinableCore, Claimed], Any]
"""Makes the protocol that ends a delivery."""


def _checked_delay(delay: float) -> float:
    if isinstance(delay, bool) or not isinstance(delay, (int, float)):
        raise TypeError(f"delay must be a number of seconds, not {type(delay).__name__}")
    if not 0 <= delay <= _MAX_DELAY_S:
        raise ValueError(f"delay must be between 0 and {_MAX_DELAY_S:.0f} seconds, not {delay}")
    return float(delay)


def _done(core: JoinableCore, claimed: Claimed) -> Any:
    return core.done(claimed)


def _checked_prefetch(prefetch: int, max_deliveries: int) -> int:
    if isinstance(prefetch, bool) or not isinstance(prefetch, int):
        raise TypeError(f"prefetch must be an int, not {type(prefetch).__name__}")
    if not 0 <= prefetch < BATCH:
        raise ValueError(f"prefetch must be between 0 and {BATCH - 1} items, not {prefetch}")
    if prefetch and max_deliveries == 1:
        raise ValueError(
            "prefetch needs max_deliveries above 1, or 0: what was claimed ahead by who died was delivered"
        )
    return prefetch


class Delivery(Generic[Item]):
    """An item that this process has got and not done yet; nobody else has it, as long as `held`.

    With ``with``: done at the end of the block, or given back if that raises.

    Source: hazards of at-least-once delivery; ``multiprocessing.JoinableQueue.task_done``.
    """

    __module__ = "distsync.recipes"

    def __init__(self, queue: JoinableQueue[Item], claimed: Claimed, item: Item) -> None:
        self._queue = queue
        self._claimed = claimed
        #: What was put.
        self.item = item
        #: The thread that got it.
        self._owner = threading.get_ident()

    @property
    def deliveries(self) -> int:
        """How often it was delivered, this time included. Cost: no request."""
        return self._claimed.label.deliveries

    @property
    def key(self) -> str | None:
        """The key that it was put with. Cost: no request."""
        return self._claimed.label.key

    @property
    def held(self) -> bool:
        """True while this process provably has it: nobody else was given it. Cost: no request."""
        return self in self._queue._open() and not self._claimed.loss.fired

    def done(self) -> None:
        """The item is done, and in the queue no more.

        Raises: LockLostError if it was lost and somebody else has got it; ValueError if it was ended before;
            OutcomeUnknownError when the session ended in this moment and nobody can know whether it was still ours.
        Cost: 1 request.
        """
        if not self._queue._end(self, _done):
            raise ValueError(_ENDED)

    def nack(self, *, delay: float = 0.0) -> None:
        """The item is to be got again, by anybody: first in order, or after ``delay`` seconds.

        Units: seconds. One that was delivered ``max_deliveries`` times is a dead letter now.
        Raises: LockLostError if it was lost and somebody else has got it; ValueError if it was ended before;
            OutcomeUnknownError when the session ended in this moment and nobody can know whether it was still ours.
        Cost: 1 request; with a delay 2.
        """
        if not self._queue._end(self, self._queue._nacking(delay)):
            raise ValueError(_ENDED)

    def __enter__(self) -> Delivery[Item]:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        try:
            if self not in self._queue._open():
                return
            if kind is None:
                self.done()
            else:
                self.nack()
        except (DistsyncError, ValueError):
            raise
        except BaseException:  # perhaps interrupted before it began
            self._queue._abandon(self)
            raise

    def __repr__(self) -> str:
        return f"<distsync.recipes.Delivery {self.deliveries} of {type(self.item).__name__} from {self._queue.name!r}>"


class JoinableQueue(Queue[Item]):
    """First in, first out; who gets an item has it until ``task_done``, and if he dies before, another one gets it.

    An item may be worked on twice, by the one who died and by the next one, but is done once: who has lost it learns
    that at ``task_done``. With ``max_deliveries`` an item that was delivered so often without being done goes to
    ``dead_letters``.

    With ``prefetch`` a get claims so many more items, which the next gets of this process find without a request; what
    nobody has asked for after 3 seconds goes back to its place. One that was delivered before comes alone. For short
    tasks: nobody else does what waits behind a long one.

    Units: ``maxsize`` in items that nobody has got yet, those with a delay left out; 0 or less: no bound.
        ``max_deliveries`` in deliveries; 0: without end. ``prefetch`` in items, 99 at most. Some 10,000 delayed items
        at most.
    On loss: of the session: what was got and not done is got by another, first in order.
    Cost: put 1 request; get 6 in 3 round trips, if there are items, and 1 more for each one that it claims ahead;
        task_done 1.
    Fair: as Queue; what comes back comes before all that was put later, what is due before all that had no delay.
    Source: recipes.txt, Queues; ``multiprocessing.JoinableQueue``.

    Znodes: as Queue, and ``claims/...``, ephemeral, who has an item; ``delayed/``, ``keys/``, ``dead/``, ``clock``.

    >>> jobs = JoinableQueue(name="jobs", max_deliveries=5)
    >>> jobs.put("first", key="1"), jobs.put("again", key="1")
    (True, False)
    >>> jobs.get()
    'first'
    >>> jobs.task_done(); jobs.join()
    """

    __module__ = "distsync.recipes"
    _kind = "joinable_queue"

    def __init__(
        self,
        maxsize: int = 0,
        max_deliveries: int = 0,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
        prefetch: int = 0,
    ) -> None:
        if isinstance(max_deliveries, bool) or not isinstance(max_deliveries, int):
            raise TypeError(f"max_deliveries must be an int, not {type(max_deliveries).__name__}")
        if max_deliveries < 0:
            raise ValueError(f"max_deliveries must be 0 (no limit) or more, not {max_deliveries}")
        #: After so many deliveries an item that is not done is a dead letter, for this object's gets; 0: never.
        self.max_deliveries = max_deliveries
        #: So many items more than a get returns are claimed with it, for the next gets of this process.
        self.prefetch = _checked_prefetch(prefetch, max_deliveries)
        self._context: str | None = None
        super().__init__(maxsize, name=name, client=client, path=path, acl=acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self.maxsize, self.max_deliveries)

    def _options(self) -> dict[str, Any]:
        return {"prefetch": self.prefetch} if self.prefetch else {}

    def _make_core(self, path: str) -> JoinableCore:
        return JoinableCore(path, self._receipts)

    @property
    def _claims(self) -> JoinableCore:
        core = self._core
        assert isinstance(core, JoinableCore)
        return core

    def _open(self) -> list[Delivery[Item]]:
        """What this process has got from this queue and not ended."""
        found: list[Delivery[Item]] = self._claims.open
        return found

    def _encoded(self, item: Item) -> bytes:
        return self.client.codec.encode(item, self._context or self.path)

    def put(  # type: ignore[override]
        self,
        item: Item,
        block: bool = True,
        timeout: float | None = None,
        *,
        delay: float = 0.0,
        key: str | None = None,
    ) -> bool:
        """``item`` is in the queue, to be got after ``delay`` seconds; but not if one with the same key is.

        Units: seconds; None: without end. ``delay``: by the clock of the ZooKeeper servers, none of a client's.
        Returns: True; False if an item with this ``key`` was put before and is not done (nor a dead letter): nothing
            was put.
        Raises: Full if there was no room, at once if not ``block``, or not in time; ShutDown; PayloadError for an
            item that does not pickle or is too large. Then nothing was put. OutcomeUnknownError when the connection
            broke and the time was over before anybody could know.
        On loss: of the session: it goes on.
        On cancel: the item is in the queue, or not.
        Cost: 1 request; with a delay 2; with a bound 4, in 1 round trip, if there is room.
        Source: recipes.txt, Queues.
        """
        if self.maxsize <= 0 and timeout is not None and timeout < 0:
            timeout = None
        seconds, later = validate_timeout(timeout, "queue", block), _checked_delay(delay)
        if key is not None and not isinstance(key, str):
            raise TypeError(f"key must be a str, not {type(key).__name__}")
        waits, data = seconds if self.maxsize > 0 else timeout, self._encoded(item)
        return bool(self._run(self._claims.add(data, bool(block), later, key, self.maxsize, waits is None), waits))

    def put_many(self, items: Iterable[Item], block: bool = True, timeout: float | None = None) -> None:
        """All ``items`` are in the queue, in their order: up to 100 with one request, all of these or none.

        Units, Raises, On loss, On cancel, Cost, Source: as Queue.put_many.
        """
        seconds = (
            validate_timeout(timeout, "queue", block)
            if self.maxsize > 0
            else timeout
            if timeout and timeout > 0
            else None
        )
        encoded = [("", ItemHeader().before(self._encoded(item))) for item in items]
        progress = Progress()
        try:
            self._run(put_many(self._claims, encoded, bool(block), progress, self.maxsize), seconds)
        except BaseException as error:
            error.put = progress.put  # type: ignore[attr-defined]
            raise

    def claim(self, block: bool = True, timeout: float | None = None) -> Delivery[Item]:
        """The next item, with all that is known about its delivery; it is this process's until `Delivery.done`.

        Units: seconds; None: without end.
        Returns: the delivery; ``delivery.item`` is the item.
        Raises: Empty if there was none that nobody has, at once if not ``block``, or not in time; ShutDown if all is
            done and it was shut down; PayloadRefusedError for an item that is unsigned, altered or unreadable, and is a
            dead letter now; OutcomeUnknownError when the session ended in this moment: if an item was claimed, it has
            gone back to its place.
        On loss: of the session: it goes on.
        On cancel: the item that was on its way goes back to its place.
        Cost: 6 requests, 3 round trips, if there are items.
        Fair: who waits longest gets first, after those who come anew in that moment.
        Source: recipes.txt, Queues.
        """
        return self._several(1, validate_timeout(timeout, "queue", block), bool(block))[0]

    def get(self, block: bool = True, timeout: float | None = None) -> Item:
        """The next item, which is this thread's until `task_done`.

        Units, Returns, Raises, On loss, On cancel, Cost, Fair, Source: as claim.
        """
        return self.claim(block, timeout).item

    def get_many(self, n: int, block: bool = True, timeout: float | None = None) -> list[Item]:
        """The next items, ``n`` at most and 100 at most: this thread's until as many calls of `task_done`.

        Units: seconds; None: without end.
        Returns: one item at least; as many as are there now, up to the end of a segment or 900 kB.
        Raises, On loss, On cancel, Fair, Source: as claim.
        Cost: 5 requests, and 1 for each item, 3 round trips, if there are items.
        """
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"n must be an int, not {type(n).__name__}")
        if n < 1:
            raise ValueError(f"n must be 1 or more, not {n}")
        return [delivery.item for delivery in self._several(n, validate_timeout(timeout, "queue", block), bool(block))]

    def _several(self, max_items: int, seconds: float | None, block: bool) -> list[Delivery[Item]]:
        core, contender_data, max_deliveries, prefetch = self._claims, describe(), self.max_deliveries, self.prefetch
        claimed: list[Claimed] = []
        try:  # what is ours is known here before the call ends: a signal may strike in its last line
            self._run(core.claim_into(claimed, contender_data, block, max_items, max_deliveries, prefetch), seconds)
            if not claimed:
                raise Empty
            found = self._decoded(core, claimed)
            core.open += found
            return found
        except BaseException:
            for each in tuple(core.open):
                if each._claimed in claimed:
                    self._take_off(each)
            for each in claimed:
                self.client.background(core.give_back(each))
            raise

    def _decoded(self, core: JoinableCore, claimed: list[Claimed]) -> list[Delivery[Item]]:
        """What was got. What cannot be decoded is a dead letter; PayloadRefusedError if nothing else is there."""
        refused, found = None, []
        for each in claimed:
            try:
                found.append(Delivery(self, each, self.client.codec.decode(each.payload, self._context or self.path)))
            except PayloadRefusedError as error:
                refused = error
                self._run(core.dead_letter(each))
        if refused is not None and not found:
            raise refused
        return found

    def task_done(self, item: Item = _NONE) -> None:
        """The item that this thread got first, of those not done, is done; or ``item`` is.

        Where the thread has none, the one that any thread of this process got first.

        Raises: ValueError if there is none; LockLostError if it was lost (its session ended, or was not provably alive)
            and somebody else has got it: what was done for it must be undone, or stand twice; OutcomeUnknownError when
            the session ended in this moment and nobody can know which of the two.
        On cancel: the item is done, or another one gets it.
        Cost: 1 request.
        """
        self._end_mine(item, "task_done() called too many times", _done)

    def nack(self, item: Item = _NONE, *, delay: float = 0.0) -> None:
        """That item, as in `task_done`, is to be got again: first in order, or after ``delay`` seconds.

        Units: seconds. One that was delivered ``max_deliveries`` times is a dead letter now.
        Raises: as `task_done`.
        Cost: 1 request; with a delay 2.
        """
        self._end_mine(item, "nack() called too many times", self._nacking(delay))

    def _nacking(self, delay: float) -> _Ending:
        seconds = _checked_delay(delay)
        return lambda core, claimed: core.nack(claimed, seconds, self.max_deliveries)

    def _end_mine(self, item: Item, error_message: str, action: _Ending) -> None:
        while not self._end(self._mine(item, error_message), action):  # another thread has just ended that one
            pass

    def _mine(self, item: Item, error_message: str) -> Delivery[Item]:
        have = tuple(self._open())  # other threads change it
        if item is not _NONE:
            same = [each for each in have if each.item is item] or [each for each in have if each.item == item]
            if not same:
                raise ValueError(f"this process has not got {item!r} from {self.path}, or it is done")
            return same[0]
        me = threading.get_ident()
        ours = [each for each in have if each._owner == me] or have
        if not ours:
            raise ValueError(error_message)
        return ours[0]

    def _end(self, delivery: Delivery[Item], action: _Ending) -> bool:
        """Whether it was open; it is ended then, by this thread alone."""
        core = self._claims
        if delivery not in core.open:
            return False
        try:
            if not self._take_off(delivery):
                return False
            self._run(action(core, delivery._claimed))
            return True
        except UsageError:  # nothing was done: this thread must not wait, say
            core.open.insert(0, delivery)
            raise
        except BaseException as error:
            if not isinstance(error, (DistsyncError, ValueError)) and delivery not in core.open:
                self.client.background(core.release(delivery._claimed))  # nobody knows of it any more
            raise

    def _take_off(self, delivery: Delivery[Item]) -> bool:
        """Whether it was open, and is no more. Of several threads one hears that."""
        try:
            self._open().remove(delivery)
        except ValueError:
            return False
        return True

    def _abandon(self, delivery: Delivery[Item]) -> None:
        """Nobody here knows of it any more: another one gets it. May be done twice."""
        if self._take_off(delivery):
            self.client.background(self._claims.release(delivery._claimed))

    @property
    def dead_letters(self) -> JoinableQueue[Item]:
        """The queue of the items that were delivered too often. Cost: no request."""
        found: JoinableQueue[Item] = JoinableQueue(path=f"{self.path}/dead", client=self._explicit_client)
        found._context = self._context or self.path
        return found

    def join(self) -> None:
        """Every item that was put is done, or a dead letter.

        On loss: of the session: it goes on waiting.
        On cancel: nothing is left behind.
        Cost: 3 requests, 1 watch; as many for each item that is done while it waits.
        """
        super().join()

    def shutdown(self, immediate: bool = False) -> None:
        """No item can be put any more; workers get what is left, and ShutDown when all is done.

        With ``immediate`` what nobody has is thrown away, and what this process has claimed ahead. What other processes
        have claimed ahead (`prefetch`) counts as had: it is got there, or comes back after 3 seconds and is got then.

        Cost: 1 request; with ``immediate`` 11, and 2 for each item that is thrown away; 7 if there is none.
        Source: ``queue.Queue.shutdown`` of Python 3.13.
        """
        self._run(self._claims.shutdown(immediate))

    def qsize(self) -> int:
        """How many items nobody has got, due or not, about now. Cost: 4 requests, 1 round trip."""
        return int(self._read(self._claims.znodes.size()))
