"""JoinableQueue and Delivery: a queue whose unacknowledged items are redelivered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from queue import Empty
from typing import TYPE_CHECKING, Any, Generic

from distsync._client.contender_info import describe
from distsync._objects.base import ask_timeout_of
from distsync._objects.queues import Item, Queue
from distsync._objects.validation import validate_timeout
from distsync._protocols.queues.bulk import Progress, put_many
from distsync._protocols.queues.claim_layout import ClaimedItem as Claimed
from distsync._protocols.queues.claim_layout import ItemHeader
from distsync._protocols.queues.claim_queue import JoinableCore
from distsync._protocols.queues.segments import BATCH
from distsync._protocols.steps import Signal
from distsync._signal_handlers import interruptible_at_entry, is_from_handler, is_from_signal, raise_if_from_handler
from distsync.errors import DistsyncError, UsageError

if TYPE_CHECKING:
    from distsync._client.client import Client

__all__ = ["Delivery", "JoinableQueue"]

_NONE: Any = object()
_ENDED = "this delivery was ended before"
_MAX_DELAY_S = 10 * 366 * 86_400.0

_Ending = Callable[[JoinableCore, Claimed], Any]
"""Returns the protocol that ends a delivery."""


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
        raise ValueError("prefetch needs max_deliveries of 0, or 2 or more: an item claimed ahead counts as delivered")
    return prefetch


class Delivery(Generic[Item]):
    """An item that this process has got and not yet finished.

    No other process has the item while `held` is True. As a context manager, the delivery is done
    at the end of the block, or given back if the block raises. Deliveries are returned by
    JoinableQueue.claim.

    Args:
        queue: The queue that the item comes from.
        claimed: The claimed znode of the item.
        item: The item.

    Note:
        Source: hazards of at-least-once delivery; ``multiprocessing.JoinableQueue.task_done``.

    Example:
        >>> from distsync import JoinableQueue
        >>> letters = JoinableQueue(name="letters")
        >>> _ = letters.put("first")
        >>> with letters.claim() as delivery:
        ...     print(delivery.item)
        first
    """

    __module__ = "distsync.recipes"

    def __init__(self, queue: JoinableQueue[Item], claimed: Claimed, item: Item) -> None:
        self._queue = queue
        self._claimed = claimed
        #: The item that was put.
        self.item = item
        #: The identifier of the thread that got the item.
        self._owner = threading.get_ident()

    @property
    def deliveries(self) -> int:
        """The number of times that the item was delivered, including this one.

        Note:
            Costs no request.
        """
        return self._claimed.label.deliveries

    @property
    def key(self) -> str | None:
        """The key with which the item was put; None without a key.

        Note:
            Costs no request.
        """
        return self._claimed.label.key

    @property
    def held(self) -> bool:
        """Whether this process provably has the item, so that no other process was given it.

        Note:
            Costs no request.
        """
        return self in self._queue._open() and not self._claimed.loss.fired

    def done(self, *, timeout: float | None = None) -> None:
        """Mark the item as done, and remove it from the queue.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Raises:
            LockLostError: The item was lost, and another process has got it.
            ValueError: The delivery was ended before.
            OutcomeUnknownError: The session ended before the reply, and the item may or may not
                have been lost.
            DeadlineError: No server answered in time, and the item is either done or redelivered.
                Subclass of TimeoutError.

        Note:
            Costs 1 request.
        """
        if not self._queue._end(self, _done, timeout):
            raise ValueError(_ENDED)

    def nack(self, *, delay: float = 0.0, timeout: float | None = None) -> None:
        """Give the item back for redelivery, first in order or after ``delay`` seconds.

        An item that was delivered ``max_deliveries`` times becomes a dead letter instead.

        Args:
            delay: Seconds until the item can be got again; 0 makes it available at once. The clock
                of the ZooKeeper servers counts.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Raises:
            LockLostError: The item was lost, and another process has got it.
            TypeError: ``delay`` is not a number.
            ValueError: The delivery was ended before, or ``delay`` is negative or more than 10
                years.
            OutcomeUnknownError: The session ended before the reply, and the item may or may not
                have been lost.
            DeadlineError: No server answered in time, and the item is given back, perhaps without
                the delay. Subclass of TimeoutError.

        Note:
            Costs 1 request, and 2 with a delay.
        """
        if not self._queue._end(self, self._queue._nacking(delay), timeout):
            raise ValueError(_ENDED)

    def __enter__(self) -> Delivery[Item]:
        return self

    @interruptible_at_entry
    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        try:
            if self not in self._queue._open():
                return
            if kind is None:
                self.done()
            else:
                self.nack()
        except BaseException as error:  # perhaps interrupted before done() or nack() began
            if not isinstance(error, (DistsyncError, ValueError)) or is_from_handler(error):
                self._queue._abandon(self)
            raise

    def __repr__(self) -> str:
        return f"<distsync.recipes.Delivery {self.deliveries} of {type(self.item).__name__} from {self._queue.name!r}>"


class JoinableQueue(Queue[Item]):
    """A FIFO queue with acknowledgements, which redelivers items of a process that exits.

    A consumer that gets an item has it until `task_done`. If the consumer's process exits or its
    session ends before that, another consumer gets the item. An item may therefore be processed
    twice, but only one consumer's `task_done` succeeds: the other one gets LockLostError.

    With ``max_deliveries``, an item that was delivered that often without being done is moved to
    `dead_letters`.

    With ``prefetch``, a get claims additional items, which later gets of this process return
    without a request. An item that no get has asked for after 3 seconds is given back. An item that
    was delivered before is claimed alone. Use it for short tasks, because no other process can take
    items that wait behind a long one.

    Args:
        maxsize: Maximum number of items that no consumer has, delayed items not counted; 0 or less
            means unbounded. The bound is not shared: give the same one to all objects of this name.
        max_deliveries: Number of deliveries after which an unfinished item becomes a dead letter; 0
            means never.
        name: Name of the queue, shared by all processes that use it. Without a name, a queue
            assigned at module or class level is named after its variable; any other queue gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the queue's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        prefetch: Number of additional items that a get claims, at most 99; 0 claims none.

    Raises:
        TypeError: ``max_deliveries`` or ``prefetch`` is not an int, or both a name and a path are
            given.
        ValueError: ``max_deliveries`` is negative, ``prefetch`` is out of range, or ``prefetch`` is
            given with ``max_deliveries=1``.
        ConfigurationError: ``acl`` is not valid.

    Note:
        `put` costs 1 request. `get` costs 6 in 3 round trips if items are waiting, and 1 more for
        each item that it claims in addition. `task_done` costs 1.

        If the session ends, items that were got and not done are redelivered, first in order.

        Getters are served as by Queue. Items that are given back are delivered before all that were
        put later, and due items before all that had no delay. There can be about 10,000 delayed
        items.

        Znodes: those of Queue, and ``claims/...``, ephemeral, one for each item that a consumer
        has; ``delayed/``, ``keys/``, ``dead/`` and ``clock``.

        Source: ZooKeeper recipes, "Queues"; ``multiprocessing.JoinableQueue``.

    Example:
        >>> jobs = JoinableQueue(name="jobs", max_deliveries=5)
        >>> jobs.put("first", key="1"), jobs.put("again", key="1")
        (True, False)
        >>> jobs.get()
        'first'
        >>> jobs.task_done(); jobs.join()
    """

    __module__ = "distsync.recipes"
    _kind = "joinable_queue"
    _extensible_hooks = ()

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
        #: After this many deliveries by this object, an unfinished item becomes a dead letter; 0 means never.
        self.max_deliveries = max_deliveries
        #: The number of additional items that a get claims for later gets of this process.
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
        """Return the list of unfinished deliveries of this process."""
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
        """Put an item into the queue, unless an unfinished item has the same key.

        Nothing was put if this raises Full, ShutDown or PayloadError.

        Args:
            item: The item to put.
            block: Whether to wait for room, if the queue is bounded.
            timeout: Maximum wait in seconds; 0 does not wait, None waits forever.
            delay: Seconds until the item can be got; 0 makes it available at once. The clock of the
                ZooKeeper servers counts, not a client's.
            key: A text that identifies the item; None puts it in any case.

        Returns:
            True if the item was put. False if an item with this ``key`` was put before, and is
            neither done nor a dead letter.

        Raises:
            Full: There was no room, or no connection, in time.
            ShutDown: The queue was shut down.
            PayloadError: The item cannot be encoded, or is too large.
            OutcomeUnknownError: The timeout passed or the session ended before the reply, and the
                item may or may not have been put.
            TypeError: ``key`` is not a str, or ``delay`` is not a number.
            ValueError: ``delay`` is negative or more than 10 years, or ``timeout`` is negative and
                the queue is bounded.
            DeadlineError: No server answered within the client's default timeout, and the item may
                or may not be put. Only without a bound and ``timeout``. Subclass of TimeoutError.

        Note:
            Costs 1 request, or 2 with a delay. With a bound, it costs 4 in 1 round trip if there is
            room.

            If the session ends, the call continues in the next one. If interrupted, the item may or
            may not be in the queue.

            Source: ZooKeeper recipes, "Queues".
        """
        if self.maxsize <= 0 and timeout is not None and not timeout >= 0:
            timeout = None
        seconds, later = validate_timeout(timeout, "queue", block), _checked_delay(delay)
        if key is not None and not isinstance(key, str):
            raise TypeError(f"key must be a str, not {type(key).__name__}")
        waits, data = seconds if self.maxsize > 0 else timeout, self._encoded(item)
        adding = self._claims.add(data, bool(block), later, key, self.maxsize, waits is None)
        return bool(self._run_put(adding, waits, self.maxsize))

    def put_many(self, items: Iterable[Item], block: bool = True, timeout: float | None = None) -> None:
        """Put several items, in order, in batches of up to 100.

        Each batch is put as a whole or not at all. With a bound, items are put one by one.

        If the call fails while putting, the error's attribute ``put`` is the number of items,
        counted from the first, that are certainly in the queue.

        Args:
            items: The items to put.
            block: Whether to wait for room, if the queue is bounded.
            timeout: Maximum wait for all items together, in seconds. None waits forever, and so
                does 0 without a bound.

        Raises:
            Full: There was no room, or no connection, in time.
            ShutDown: The queue was shut down.
            PayloadError: An item cannot be encoded, or is too large. Nothing was put.
            OutcomeUnknownError: The timeout passed or the session ended before the reply, and a
                batch may or may not have been put.
            ValueError: ``timeout`` is negative and the queue is bounded.
            DeadlineError: No server answered within the client's default timeout, and a batch may
                or may not be put. Only without a bound and ``timeout``. Subclass of TimeoutError.

        Note:
            Costs 1 request for each 100 items or 900 kB, and 3 more once in the life of a queue. With a
            bound, each item costs as much as a `put`.

            If the session ends, the call continues in the next one. If interrupted, the first
            batches are in the queue and the others are not.

            Source: ZooKeeper recipes, "Queues".
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
            self._run_put(put_many(self._claims, encoded, bool(block), progress, self.maxsize), seconds, self.maxsize)
        except BaseException as error:
            error.put = progress.put  # type: ignore[attr-defined]
            raise

    def claim(self, block: bool = True, timeout: float | None = None) -> Delivery[Item]:
        """Get the next item as a Delivery, which this process has until `Delivery.done`.

        Args:
            block: Whether to wait.
            timeout: Maximum wait in seconds; 0 does not wait, None waits forever.

        Returns:
            The delivery, whose attribute ``item`` is the item.

        Raises:
            Empty: No item became available in time.
            ShutDown: The queue was shut down, and all items are done.
            PayloadRefusedError: The item is unsigned, altered or unreadable. It has become a dead
                letter.
            OutcomeUnknownError: The session ended before the reply. If an item was claimed, it has
                been given back.
            ValueError: ``timeout`` is negative.

        Note:
            Costs 6 requests in 3 round trips if items are waiting.

            Getters are served in FIFO order; a getter that arrives while an item is available may
            overtake them.

            If the session ends, the call continues in the next one. If interrupted, an item in
            transit is put back in its place, and this delivery is not counted.

            Source: ZooKeeper recipes, "Queues".
        """
        return self._several(1, validate_timeout(timeout, "queue", block), bool(block))[0]

    def get(self, block: bool = True, timeout: float | None = None) -> Item:
        """Get the next item, which this thread has until `task_done`.

        Args:
            block: Whether to wait.
            timeout: Maximum wait in seconds; 0 does not wait, None waits forever.

        Returns:
            The item.

        Raises:
            Empty: No item became available in time.
            ShutDown: The queue was shut down, and all items are done.
            PayloadRefusedError: The item is unsigned, altered or unreadable. It has become a dead
                letter.
            OutcomeUnknownError: The session ended before the reply. If an item was claimed, it has
                been given back.
            ValueError: ``timeout`` is negative.

        Note:
            Costs as many requests as `claim`, and behaves like it.

            Source: ZooKeeper recipes, "Queues".
        """
        return self.claim(block, timeout).item

    def get_many(self, n: int, block: bool = True, timeout: float | None = None) -> list[Item]:
        """Get the next items, which this thread has until one call of `task_done` for each.

        Args:
            n: Maximum number of items. At most 100 are returned even if it is greater.
            block: Whether to wait.
            timeout: Maximum wait for the first item, in seconds; 0 does not wait, None waits
                forever.

        Returns:
            At least one item. There may be fewer than ``n`` even if more are in the queue, at the
            end of a segment or at 900 kB.

        Raises:
            TypeError: ``n`` is not an int.
            ValueError: ``n`` is less than 1, or ``timeout`` is negative.
            Empty: No item became available in time.
            ShutDown: The queue was shut down, and all items are done.
            PayloadRefusedError: All items are unsigned, altered or unreadable. They have become
                dead letters.
            OutcomeUnknownError: The session ended before the reply. If items were claimed, they
                have been given back.

        Note:
            Costs 5 requests and 1 for each item, in 3 round trips, if items are waiting.

            Fairness, and behaviour when the session ends or on an interrupt, are those of `claim`.

            Source: ZooKeeper recipes, "Queues".
        """
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"n must be an int, not {type(n).__name__}")
        if n < 1:
            raise ValueError(f"n must be 1 or more, not {n}")
        found = self._several(n, validate_timeout(timeout, "queue", block), bool(block))
        try:
            return [delivery.item for delivery in found]
        except BaseException:  # an interrupt
            self._give_back([delivery._claimed for delivery in found])
            raise

    def _several(self, max_items: int, seconds: float | None, block: bool) -> list[Delivery[Item]]:
        core, contender_data, max_deliveries, prefetch = self._claims, describe(), self.max_deliveries, self.prefetch
        claimed: list[Claimed] = []
        try:  # the claimed items are known here before the call ends: an interrupt may hit its last line
            self._run(core.claim_into(claimed, contender_data, block, max_items, max_deliveries, prefetch), seconds)
            if not claimed:
                self._late()
                raise Empty
            found = self._decoded(core, claimed)
            core.open += found
            return found
        except BaseException:
            self._give_back(claimed)
            raise

    def _give_back(self, claimed: list[Claimed]) -> None:
        """Give back what an interrupted call has claimed, before this process gets another item."""
        core = self._claims
        for each in tuple(core.open):
            if each._claimed in claimed:
                self._take_off(each)
        if claimed:
            settled = Signal()
            core.unsettled.add(settled)
            self.client.background(core.give_all_back(claimed, settled))

    def _decoded(self, core: JoinableCore, claimed: list[Claimed]) -> list[Delivery[Item]]:
        """Return the decoded deliveries; items that cannot be decoded become dead letters.

        Raises the error of the last one if no item is left.
        """
        refused: BaseException | None = None
        found: list[Delivery[Item]] = []
        for each in claimed:
            try:
                found.append(Delivery(self, each, self.client.codec.decode(each.payload, self._context or self.path)))
            except BaseException as error:  # an item can call sys.exit() when it is unpickled
                if is_from_signal(error):
                    raise
                refused = error
                self._run(core.dead_letter(each))
        if refused is not None and not found:
            raise refused
        return found

    def task_done(self, item: Item = _NONE) -> None:
        """Mark an item as done: the first unfinished one that this thread got, or ``item``.

        If this thread has no item, it is the first one that any thread of this process got.

        Args:
            item: The item to mark, found by identity or else by equality. By default, the first
                one.

        Raises:
            ValueError: There is no such item.
            LockLostError: The item was lost because the session ended or was not provably alive,
                and another process has got it. Undo the work on it, or it takes effect twice.
            OutcomeUnknownError: The session ended before the reply, and the item may or may not
                have been lost.
            DeadlineError: No server answered within the client's default timeout, and the item is
                either done or redelivered. Subclass of TimeoutError.

        Note:
            Costs 1 request.

            If interrupted, the item is either done or redelivered.
        """
        self._end_mine(item, "task_done() called too many times", _done)

    def nack(self, item: Item = _NONE, *, delay: float = 0.0, timeout: float | None = None) -> None:
        """Give an item back for redelivery, first in order or after ``delay`` seconds.

        The item is chosen as in `task_done`. An item that was delivered ``max_deliveries`` times
        becomes a dead letter instead.

        Args:
            item: The item to give back, found by identity or else by equality. By default, the
                first one.
            delay: Seconds until the item can be got again; 0 makes it available at once. The clock
                of the ZooKeeper servers counts.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Raises:
            TypeError: ``delay`` is not a number.
            ValueError: There is no such item, or ``delay`` is negative or more than 10 years.
            LockLostError: The item was lost, and another process has got it.
            OutcomeUnknownError: The session ended before the reply, and the item may or may not
                have been lost.
            DeadlineError: No server answered in time, and the item is given back, perhaps without
                the delay. Subclass of TimeoutError.

        Note:
            Costs 1 request, and 2 with a delay.
        """
        self._end_mine(item, "nack() called too many times", self._nacking(delay), timeout)

    def _nacking(self, delay: float) -> _Ending:
        seconds = _checked_delay(delay)
        return lambda core, claimed: core.nack(claimed, seconds, self.max_deliveries)

    def _end_mine(self, item: Item, error_message: str, action: _Ending, timeout: float | None = None) -> None:
        while not self._end(self._mine(item, error_message), action, timeout):  # another thread has just ended it
            pass

    def _mine(self, item: Item, error_message: str) -> Delivery[Item]:
        have = tuple(self._open())  # a copy, because other threads change the list
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

    def _end(self, delivery: Delivery[Item], action: _Ending, timeout: float | None = None) -> bool:
        """End a delivery. Return True to exactly one of several concurrent callers."""
        core = self._claims
        seconds = ask_timeout_of(self.client, timeout)  # first: the delivery stays if it raises
        if delivery not in core.open:
            return False
        try:
            if not self._take_off(delivery):
                return False
            self._ask(action(core, delivery._claimed), -1 if seconds is None else seconds)
            return True
        except BaseException as error:
            if not isinstance(error, (DistsyncError, ValueError)) or is_from_handler(error):
                if delivery not in core.open:
                    self.client.background(core.release(delivery._claimed))  # no list contains it any more
            elif isinstance(error, UsageError):  # nothing was done, for example because this thread must not block
                core.open.insert(0, delivery)
            raise

    def _take_off(self, delivery: Delivery[Item]) -> bool:
        """Remove a delivery from the list. Return True to one of several concurrent callers."""
        try:
            self._open().remove(delivery)
        except ValueError as error:
            raise_if_from_handler(error)
            return False
        return True

    def _abandon(self, delivery: Delivery[Item]) -> None:
        """Give the item of a delivery back after an interrupt. Idempotent."""
        if self._take_off(delivery):
            self.client.background(self._claims.release(delivery._claimed))

    @property
    def dead_letters(self) -> JoinableQueue[Item]:
        """The queue of the items that were delivered too often.

        Note:
            Costs no request.
        """
        found: JoinableQueue[Item] = JoinableQueue(path=f"{self.path}/dead", client=self._explicit_client)
        found._bind(self._module)
        found._context = self._context or self.path
        return found

    def join(self) -> None:
        """Wait until every item that was put is done or a dead letter.

        Note:
            Costs 3 requests and 1 watch, and as many again for each item that is done during the
            wait.

            If the session ends, the wait continues in the next one. If interrupted, nothing is left
            behind.
        """
        super().join()

    def shutdown(self, immediate: bool = False) -> None:
        """Shut the queue down: `put` raises ShutDown, and so does `get` once all items are done.

        With ``immediate``, items that no consumer has are removed, and so are those that this
        process has claimed ahead (``prefetch``). Items that other processes have claimed ahead
        count as held by a consumer. They are got there, or given back after 3 seconds and then got.

        Args:
            immediate: Whether to remove the remaining items.

        Raises:
            DeadlineError: No server answered within the client's default timeout, and the queue may
                or may not be shut down. Subclass of TimeoutError.

        Note:
            Costs 1 request. With ``immediate``, it costs 11, and 2 more for each item that is
            removed, or 7 if there is none.

            Source: ``queue.Queue.shutdown`` of Python 3.13.
        """
        self._ask(self._claims.shutdown(immediate))

    def qsize(self) -> int:
        """Return the approximate number of items that no consumer has, due or not.

        Returns:
            The number of items, which may change at any time.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 4 requests in 1 round trip.
        """
        return int(self._ask(self._claims.size()))
