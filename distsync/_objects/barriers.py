"""Barrier, a drop-in replacement for ``threading.Barrier``, and DoubleBarrier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from distsync._client.contender_info import describe
from distsync._objects.base import ParametrizedObject, current_owner, exit_context, type_name
from distsync._objects.ownership import repr_state
from distsync._objects.validation import validate_callback, validate_int, validate_on_mismatch, validate_timeout
from distsync._protocols.barriers.cyclic import PARTIES, BarrierCore
from distsync._protocols.barriers.double import DoubleBarrierCore, delete_double_barrier
from distsync._signal_handlers import interruptible_at_entry, is_interrupt

if TYPE_CHECKING:
    from distsync._client.client import Client


class Barrier(ParametrizedObject):
    """A cyclic barrier shared by threads, processes and hosts, like ``threading.Barrier``.

    ``parties`` threads of any processes wait for each other, again and again.

    Args:
        parties: Number of threads to wait for, 1 or more. It must be the same in all processes that
            use the name at the same time.
        action: Called without arguments by one of the threads, before they are released; None calls
            nothing. If it raises, the barrier is broken.
        timeout: Default timeout of `wait` in seconds; None waits forever.
        name: Name of the barrier, shared by all processes that use it. Without a name, a barrier
            assigned at module or class level is named after its variable; any other barrier gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the barrier's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_mismatch: What the first use does while other processes use another number: ``"error"``
            raises MismatchError, ``"wait"`` waits until they have ended or dropped the object, and
            ``"adopt"`` uses their number. If none does, ``parties`` is taken over in each case.

    Raises:
        ValueError: ``parties`` is less than 1.
        TypeError: ``parties`` is not an integer, ``action`` is not callable, or both a name and a
            path are given.
        ConfigurationError: ``acl`` or ``on_mismatch`` is not valid.

    Note:
        Costs 3 requests in 1 round trip and 1 watch before the wait. The last thread to arrive
        costs 1 request more.

        If the session of a waiting thread ends, the barrier is broken, for this thread and for all
        others, which notice it within half a session timeout. If no other thread was waiting, the
        barrier stays intact. If a thread times out while no server can be reached, it breaks the
        barrier as soon as one can. Until then it may be counted, as long as its session lives. If a
        waiting thread is interrupted, the barrier is broken.

        The first call of a process, or of a session, costs 2 more in 1 round trip if the barrier has a
        name. A changed number of parties is taken over then if no running process uses the old one,
        and the barrier is as after a reset.

        Znodes: ``<namespace>/barrier/<name>``, whose data is the generation;
        ``.../_c_<guid>-lock-<sequence>``, ephemeral, one for each waiting thread; ``.../arrivals``,
        which counts the threads that have arrived; ``.../_r_<guid>-reset-<sequence>``, ephemeral, a
        short-lived mark of a reset; ``<namespace>/users/barrier/<name>/u_<process>_<guid>``,
        ephemeral, one for each process that uses a barrier with a name.

        Source: ZooKeeper recipes, "Double Barriers"; ``threading.Barrier``.

    Example:
        >>> start = Barrier(1, name="start")
        >>> start.wait()
        0
    """

    __module__ = "distsync.threading"
    _kind = "barrier"

    def __init__(
        self,
        parties: int,
        action: Callable[[], Any] | None = None,
        timeout: float | None = None,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
        on_mismatch: str = "error",
    ) -> None:
        self._parties = validate_int("parties", parties, least=1, or_name=True)
        self._action = validate_callback("action", action)
        self._timeout = timeout
        validate_timeout(timeout, "event")
        self._on_mismatch = validate_on_mismatch(on_mismatch)
        self._parameters = {PARTIES: self._parties}
        super().__init__(name, client, path, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._parties, self._action, self._timeout)

    @property
    def _core(self) -> BarrierCore:
        make = partial(BarrierCore, parties=self._parties, receipts=self._receipts)
        core: BarrierCore = self._agreed_state(make)
        return core

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all parties have arrived.

        Args:
            timeout: Maximum wait in seconds; 0 or less does not wait, None uses the barrier's own
                timeout. A timeout breaks the barrier for all.

        Returns:
            A number from 0 to ``parties - 1``, which is different for each thread.

        Raises:
            BrokenBarrierError: The barrier is or becomes broken, or is reset.
            MismatchError: Other processes use another number of parties.

        Note:
            Costs 3 requests in 1 round trip and 1 watch to arrive. Another look costs 2 more, at
            the end and at each half of a session timeout, and 3 more if it shows that another thread
            may have arrived and exited since. The last thread to arrive costs 1 more instead. The
            first call of a process costs 2 more, or 1 more without a name.

            If the session ends, all waiting threads get BrokenBarrierError. If interrupted, the
            barrier is broken, and no znode is left behind.

            Source: ZooKeeper recipes, "Double Barriers", Enter.
        """
        seconds = validate_timeout(self._timeout if timeout is None else timeout, "event")
        core, data = self._core, describe()
        return int(self._run(self._using(core, lambda: core.wait(data, self._action)), seconds))

    def reset(self) -> None:
        """Reset the barrier; waiting threads get BrokenBarrierError.

        Raises:
            DeadlineError: No server answered within the client's default timeout, and the barrier
                may or may not be reset. Subclass of TimeoutError.

        Note:
            Costs 3 requests in 2 round trips, and 3 more in the background. Costs 5 requests in 2
            round trips if the barrier has no name, and no thread has arrived yet.
        """
        core = self._core
        self._ask(self._using(core, core.reset))

    def abort(self) -> None:
        """Break the barrier; waiting and arriving threads get BrokenBarrierError.

        Raises:
            DeadlineError: No server answered within the client's default timeout, and the barrier
                may or may not be broken. Subclass of TimeoutError.

        Note:
            Costs 2 requests, and 3 requests in 2 round trips if the barrier was already broken.
        """
        core = self._core
        self._ask(self._using(core, core.abort))

    @property
    def parties(self) -> int:
        """The number of threads that the barrier waits for; it may be adopted from other processes."""
        return int(self._in_force[PARTIES])

    @property
    def n_waiting(self) -> int:
        """The number of threads that are waiting now.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 2 requests in 1 round trip.
        """
        core = self._core
        return int(self._ask(self._using(core, core.state))[0])

    @property
    def broken(self) -> bool:
        """Whether the barrier is broken.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 2 requests in 1 round trip.
        """
        core = self._core
        return bool(self._ask(self._using(core, core.state))[1])

    def __repr__(self) -> str:
        state = repr_state(self, lambda: self._core.state(), (0, False))
        waiting = "broken" if state[1] is True else f"waiters={state[0]}/{self.parties}"
        # CPython's tests expect one word before the name of the class
        return f"<distsync.{type(self).__qualname__} at {id(self):#x}: {waiting}>"


class DoubleBarrier(ParametrizedObject):
    """A barrier at which ``parties`` threads of any processes begin together and end together.

    It can be used again and again. A thread that has entered must leave. If more threads arrive
    than there are parties, the excess threads wait for the next round.

    Args:
        parties: Number of threads to wait for, 1 or more. It must be the same in all processes that
            use the name at the same time.
        name: Name of the barrier, shared by all processes that use it. Without a name, a barrier
            assigned at module or class level is named after its variable; any other barrier gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the barrier's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_mismatch: What the first use does while other processes use another number: ``"error"``
            raises MismatchError, ``"wait"`` waits until they have ended or dropped the object, and
            ``"adopt"`` uses their number. If none does, ``parties`` is taken over in each case.

    Raises:
        TypeError: ``parties`` is not an integer, or both a name and a path are given.
        ValueError: ``parties`` is less than 1.
        ConfigurationError: ``acl`` or ``on_mismatch`` is not valid.

    Note:
        `enter` costs 4 requests in 1 round trip, and 2 more when all parties have arrived. The last
        thread to arrive costs 1 more instead. `leave` costs 6 requests.

        If the session ends while a thread waits to enter, it enqueues again. If it ends while a
        thread is inside, `leave` raises LockLostError, and the others do not wait for it. If
        interrupted, nothing is left behind.

        Excess threads enter in FIFO order.

        The first call of a process, or of a session, costs 2 more in 1 round trip if the barrier has a
        name. A changed number of parties is taken over then if no running process uses the old one,
        and the barrier has no members.

        Znodes: ``<namespace>/double_barrier/<name>``, whose data is the number of parties and the
        threads inside; ``.../_c_<guid>-lock-<sequence>``, ephemeral, one for each thread;
        ``.../ready``, which exists while a thread is inside;
        ``<namespace>/users/double_barrier/<name>/u_<process>_<guid>``, ephemeral, one for each
        process that uses a barrier with a name.

        Source: ZooKeeper recipes, "Double Barriers".

    Example:
        >>> with DoubleBarrier(1, name="step"):
        ...     print("all are here")
        all are here
    """

    __module__ = "distsync.recipes"
    _kind = "double_barrier"

    def __init__(
        self,
        parties: int,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
        on_mismatch: str = "error",
    ) -> None:
        self._parties = validate_int("parties", parties, least=1, or_name=True)
        self._on_mismatch = validate_on_mismatch(on_mismatch)
        self._parameters = {PARTIES: self._parties}
        super().__init__(name, client, path, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._parties,)

    @property
    def parties(self) -> int:
        """The number of threads that the barrier waits for; it may be adopted from other processes."""
        return int(self._in_force[PARTIES])

    @property
    def _core(self) -> DoubleBarrierCore:
        core: DoubleBarrierCore = self._agreed_state(partial(DoubleBarrierCore, parties=self._parties))
        return core

    @property
    def n_waiting(self) -> int:
        """The number of threads that wait to enter, including those of the next round.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 2 requests in 1 round trip.
        """
        core = self._core
        return int(self._ask(self._using(core, core.state))[0])

    @property
    def n_inside(self) -> int:
        """The number of threads that have entered and not left.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 2 requests in 1 round trip.
        """
        core = self._core
        return int(self._ask(self._using(core, core.state))[1])

    async def _delete_tree(self, path: str) -> None:
        await delete_double_barrier(path)

    def enter(self, timeout: float | None = None) -> bool:
        """Wait until all parties have arrived, and enter with them.

        Args:
            timeout: Maximum wait in seconds; 0 or less does not wait, None waits forever.

        Returns:
            True if this thread is inside. False on timeout, and then it is no longer counted.

        Raises:
            MismatchError: Other processes use another number of parties.
            UsageError: This thread is already inside.
            LockLostError: This thread's session ended, or its znode was deleted, just when the
                others entered with it.

        Note:
            Costs 4 requests in 1 round trip and 1 watch, and 2 more when all parties have arrived.
            The last thread to arrive costs 1 more instead. The first call of a process costs 2
            more, or 1 more without a name.

            If the session ends, the thread enqueues again. If interrupted, its znode is deleted,
            and threads that entered with it do not wait for it when they leave.

            If there are more threads than parties, they enter in FIFO order.

            Source: ZooKeeper recipes, "Double Barriers", Enter, steps 1 to 5.
        """
        core, owner = self._core, current_owner()
        seconds = validate_timeout(timeout)
        core.check_outside(owner)
        try:
            data = describe()
            return bool(self._run(self._using(core, lambda: core.enter(data, owner)), seconds)) or self._late()
        except BaseException:
            self._give_up()  # it had entered, and was interrupted before this call returned
            raise

    def leave(self, timeout: float | None = None) -> bool:
        """Leave, and wait until all threads that entered with this one have left or exited.

        Args:
            timeout: Maximum wait in seconds; 0 or less does not wait, None waits forever.

        Returns:
            True if all have left; False on timeout. In either case this thread has left, and the
            others do not wait for it.

        Raises:
            LockLostError: This thread's session ended, or its znode was deleted, while it was
                inside. The others did not wait for it.
            NotHeldError: This thread is not inside.

        Note:
            Costs 6 requests, 4 of them before the wait. The thread with the lowest sequence number
            costs 3 requests, and 3 more each time that the one with the highest number leaves after
            it.

            If the session ends during the wait, the wait continues in the next one. If interrupted,
            the thread has left, and its znode is deleted in the background.

            Source: ZooKeeper recipes, "Double Barriers", Leave, steps 1 to 6.
        """
        try:
            seconds = validate_timeout(timeout)
            return bool(self._run(self._core.leave(current_owner()), seconds))
        except BaseException as error:
            if is_interrupt(error):
                self._give_up()
            raise

    def _give_up(self) -> None:
        """Leave after an interrupt, and delete this thread's znode in the background."""
        going = self._core.give_up(current_owner())
        if going is not None:
            self.client.background(going)

    def __enter__(self) -> DoubleBarrier:
        self.enter()
        return self

    @interruptible_at_entry
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave, without waiting for the others if the body of the block has raised."""
        try:
            exit_context(partial(self._end_block, None if kind is None else 0.0), error)
        except BaseException as failure:
            if is_interrupt(failure):
                self._give_up()
            raise

    def _end_block(self, timeout: float | None) -> None:
        self.leave(timeout)

    def __repr__(self) -> str:
        return f"<{type_name(self)} at {id(self):#x}: parties={self.parties}>"
