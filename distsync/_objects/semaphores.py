"""Semaphore and BoundedSemaphore: drop-in replacements for those of the threading module."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from distsync._client.contender_info import Contender, describe
from distsync._objects.base import ParametrizedObject, current_owner, exit_context, parse_contenders
from distsync._objects.ownership import Ownable, repr_state
from distsync._objects.validation import validate_int, validate_layout, validate_on_mismatch, validate_timeout
from distsync._protocols.locks.grant import Grant, TemporaryOwner, of_owner
from distsync._protocols.semaphores.consumable import SignalCore
from distsync._protocols.semaphores.foreign_layouts import (
    CuratorSemaphoreCore,
    KazooSemaphoreCore,
    PoolSemaphoreCore,
    kazoo_wait_queue,
)
from distsync._protocols.semaphores.leases import SemaphoreCore
from distsync._signal_handlers import interruptible_at_entry, is_from_handler
from distsync.errors import ConfigurationError, DistsyncError, LockLostError, MismatchError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client

AnyCore = SemaphoreCore | SignalCore | PoolSemaphoreCore
LEASES = (SemaphoreCore, PoolSemaphoreCore)
POOLS = {"curator": CuratorSemaphoreCore, "kazoo": KazooSemaphoreCore}


class OpenBlocks:
    """Tells the ``with`` blocks that this process has entered from those that it inherited by a fork.

    A forked child also ends the blocks that its parent has entered, and must not release the
    parent's permits there. In the process that created the object, which inherited no block,
    nothing is counted.
    """

    def __init__(self) -> None:
        self._creator_pid = os.getpid()
        self._depths: dict[tuple[int, object], int] = {}

    def depth(self, owner: object) -> int:
        """Return how many open blocks ``owner`` has entered, if this process was forked."""
        return self._depths.get((os.getpid(), owner), 0)

    def set_depth(self, owner: object, depth: int) -> None:
        """Set what `depth` returns."""
        if depth > 0 and os.getpid() != self._creator_pid:
            self._depths[os.getpid(), owner] = depth
        else:
            self._depths.pop((os.getpid(), owner), None)

    def was_entered_here(self, depth: int) -> bool:
        """Return whether an owner with this `depth` ends a block that this process has entered."""
        return depth > 0 or os.getpid() == self._creator_pid


@dataclass
class _Attempt:
    """An acquire, as far as it got, for its undo after an interrupt.

    Attributes:
        before: The grants before it; None if it has not begun.
        acquired: Whether it has succeeded.
    """

    before: tuple[Grant, ...] | None = None
    acquired: bool = False


class Semaphore(ParametrizedObject, Ownable):
    """A counting semaphore shared by threads, processes and hosts, like ``threading.Semaphore``.

    Permits held by a process that exits are released.

    ``Semaphore(0)`` is a signal: a permit that was acquired is consumed, and does not come back
    when its process exits.

    If a permit is lost, because the session can no longer be proven alive or the permit's znode was
    deleted, ``held`` becomes False and ``on_lost`` is called. Another process may have the permit
    by then, and ``release()`` raises LockLostError.

    Args:
        value: Initial number of permits, the same for all processes that use the name at the same
            time; 0 makes a signal.
        name: Name of the semaphore, shared by all processes that use it. Without a name, a
            semaphore assigned at module or class level is named after its variable; any other
            semaphore gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the semaphore's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_lost: Called with a LockLostError, in a thread of distsync's own, if a permit is lost
            while it is held. None calls nothing.
        layout: Naming scheme of the znodes: ``"distsync"``, ``"kazoo"`` to share the permits with
            kazoo's own Semaphore, or ``"curator"`` to share them with Curator's
            InterProcessSemaphoreV2. With the latter two, permits cannot be added by ``release()``.
        on_mismatch: What the first use does while other processes use another number: ``"error"``
            raises MismatchError, ``"wait"`` waits until they have ended or dropped the object, and
            ``"adopt"`` uses their number. If none does, ``value`` is taken over in each case.

    Raises:
        ValueError: ``value`` is negative.
        TypeError: ``value`` is not an integer, ``on_lost`` is not callable, or both a name and a
            path are given.
        ConfigurationError: ``acl``, ``layout`` or ``on_mismatch`` is not valid, ``value`` is 0 with
            a layout other than ``"distsync"``, or ``on_mismatch`` is given with either of them.

    Note:
        Acquiring and releasing a free permit costs 4 requests in 2 round trips. It costs 9 requests
        in kazoo's layout and 8 in Curator's.

        Permits are granted in FIFO order.

        A changed ``value`` is taken over at the first use if no running process uses the old one.
        The permits are then ``value``, without those that releases had added.

        Znodes: ``<namespace>/semaphore/<name>``, whose data is the number of permits, a container,
        which the server deletes when no permit is held or waited for; ``.../extra``, which keeps it
        while there are permits that releases have added; ``.../_c_<guid>-lock-<sequence>``,
        ephemeral, one for each permit that is held or waited for;
        ``<namespace>/users/semaphore/<name>/u_<process>_<guid>``, ephemeral, one for each process
        that uses a semaphore with a name.

        Source: ZooKeeper recipes, "Locks", with a limit; ``threading.Semaphore``.

    Example:
        >>> slots = Semaphore(3, name="slots")
        >>> with slots:
        ...     print(slots.held)
        True
    """

    __module__ = "distsync.threading"
    _kind = "semaphore"

    def __init__(
        self,
        value: int = 1,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
        on_lost: Callable[[LockLostError], Any] | None = None,
        layout: str = "distsync",
        on_mismatch: str = "error",
    ) -> None:
        value = validate_int("value", value, or_name=True)
        if value < 0:
            raise ValueError(f"semaphore initial value must be >= 0, not {value}")
        self._initial = value
        self._layout = validate_layout(layout, ("distsync", *POOLS))
        if value == 0 and self._layout in POOLS:
            raise ConfigurationError("value", value, f"a semaphore in {layout}'s layout has at least 1 permit")
        self._on_mismatch = validate_on_mismatch(on_mismatch)
        if on_mismatch != "error" and (value == 0 or layout in POOLS):
            raise ConfigurationError("on_mismatch", on_mismatch, "a signal, or another layout, keeps its number")
        self._parameters = {"initial value": value}
        self._blocks = OpenBlocks()
        super().__init__(name, client, path, on_lost, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._initial,)

    def _options(self) -> dict[str, Any]:
        layout = {} if self._layout == "distsync" else {"layout": self._layout}
        return {**super()._options(), **layout}

    def _bound(self, core: AnyCore) -> int | None:
        """Return the maximum number of free permits; None without a bound."""
        return None

    @property
    def _core(self) -> AnyCore:
        core: AnyCore = self._agreed_state(self._make_core)
        if (type(core) if isinstance(core, PoolSemaphoreCore) else None) is not POOLS.get(self._layout):
            raise MismatchError("the layout", self.path, "another one", self._layout)
        return core

    @property
    def _side_paths(self) -> tuple[str, ...]:
        return (*super()._side_paths, *((kazoo_wait_queue(self.path),) if self._layout == "kazoo" else ()))

    def _make_core(self, path: str) -> AnyCore:
        if self._layout in POOLS:
            return POOLS[self._layout](path, self._initial)
        if self._initial == 0:
            return SignalCore(path, self._receipts)
        return SemaphoreCore(path, self._initial, self._receipts)

    def _grant(self) -> Grant | None:
        """Return the latest grant of this thread, or of this process if this thread has none."""
        core, owner = self._core, current_owner()
        grants = tuple(core.grants) if isinstance(core, LEASES) else ()
        mine = [grant for grant in grants if grant.owner is owner]
        held = mine or [grant for grant in grants if not isinstance(grant.owner, TemporaryOwner)]
        return held[-1] if held else None

    def _capacity(self) -> int:
        core = self._core
        return self._ask(self._using(core, core.capacity)) if isinstance(core, LEASES) else 0

    def holders(self, *, timeout: float | None = None) -> list[Contender]:
        """Return the current holders of permits, in all processes.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            A Contender for each permit that is held.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs 2 requests and 1 for each contender.
        """
        core = self._core
        if isinstance(core, PoolSemaphoreCore):
            return parse_contenders(self._ask(core.leases(), timeout))
        return super().holders(timeout=timeout)

    def waiters(self, *, timeout: float | None = None) -> list[Contender]:
        """Return the current waiters for permits, the first in the queue first.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            A Contender for each.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs 2 requests and 1 for each contender.
        """
        if self._layout in POOLS:
            with self._limited(timeout):
                return self._contenders()
        return super().waiters(timeout=timeout)

    def _queue_path(self) -> str:
        core = self._core
        if isinstance(core, PoolSemaphoreCore):
            return core.wait_queue_path
        return core.takers if isinstance(core, SignalCore) else self.path

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Acquire a permit, waiting in FIFO order if none is free.

        Args:
            blocking: Whether to wait if no permit is free.
            timeout: Maximum wait in seconds; 0 or less tries once, None waits forever.

        Returns:
            True if a permit was acquired. False on timeout, or if ``blocking`` is False and no
            permit is free.

        Raises:
            ValueError: ``timeout`` is given with ``blocking=False``.
            MismatchError: Other processes use another initial value, or the layout is another one.

        Note:
            Costs 3 requests in 1 round trip if a permit is free. The first call of a process, or of
            a session, costs 2 more in 1 round trip if the semaphore has a name.

            Waiters are served in FIFO order. If the session ends during the wait, the thread
            enqueues again. If interrupted, no permit is taken and no znode is left behind.

            Source: ZooKeeper recipes, "Locks".
        """
        if not blocking and timeout is not None:
            raise ValueError("can't specify timeout for non-blocking acquire")
        seconds = validate_timeout(timeout, "event", blocking)
        attempt = _Attempt()
        try:
            return self._acquire(attempt, blocking, seconds)
        except BaseException as error:
            if not isinstance(error, DistsyncError) or is_from_handler(error):
                self._undo(attempt)
            raise

    def __enter__(self) -> bool:
        attempt, depth = _Attempt(), None
        try:
            depth = self._blocks.depth(current_owner())
            self._acquire(attempt, True, None)
            self._blocks.set_depth(current_owner(), depth + 1)
            return True
        except BaseException as error:
            if not isinstance(error, DistsyncError) or is_from_handler(error):
                self._undo(attempt)
                if depth is not None:
                    self._blocks.set_depth(current_owner(), depth)
            raise

    def _acquire(self, attempt: _Attempt, blocking: bool, timeout: float | None) -> bool:
        """Acquire a permit. If interrupted, the caller must undo the attempt."""
        core = self._core
        attempt.before = tuple(core.grants) if isinstance(core, LEASES) else ()
        attempt.acquired = bool(self._run(self._acquiring(core, blocking), timeout)) or self._late()
        if attempt.acquired:
            self._subscribe()
        return attempt.acquired

    def _undo(self, attempt: _Attempt) -> None:
        """Undo an interrupted acquire, which may have succeeded."""
        if attempt.before is None:
            return
        core, owner = self._core, current_owner()
        if isinstance(core, SignalCore):
            if attempt.acquired:
                self.client.background(core.release())
            return
        for grant in tuple(core.grants):
            if grant.owner is owner and grant not in attempt.before:
                self._drop(core, grant)

    def _drop(self, core: AnyCore, grant: Grant) -> None:
        """Release the permit of an interrupted call in the background. It counts as released from now on."""
        self.client.background(self._dropping(core, grant))
        grant.owner = TemporaryOwner()

    @interruptible_at_entry
    def release(self, n: int = 1) -> None:
        """Release permits: first those of this thread, then of this process, then new ones.

        New ones are permits that this process does not hold. They increase the number of permits
        for good.

        Args:
            n: Number of permits to release, 1 or more.

        Raises:
            ValueError: ``n`` is less than 1.
            OverReleaseError: A BoundedSemaphore would have more free permits than its initial
                value, or permits would be added in kazoo's or Curator's layout. Subclass of
                ValueError.
            LockLostError: A permit was lost while it was held.
            DeadlineError: No server answered within the client's default timeout, and permits that
                were not held may or may not be added. Subclass of TimeoutError.

        Note:
            Costs 1 request for each permit that is held, 3 for new ones, and 5 for one too many
            of a BoundedSemaphore.

            If the connection is lost and this process holds the permits, this waits for at most the
            session timeout, and the znodes are deleted in the background. If interrupted, the
            permits are still released.

            Source: ``threading.Semaphore``.
        """
        try:
            if validate_int("n", n) < 1:
                raise ValueError("n must be one or more")
            started = [False]
            self._release(n, started)
        except BaseException as error:
            if hasattr(n, "__index__") and n >= 1 and (not isinstance(error, DistsyncError) or is_from_handler(error)):
                self._release_anyway(n, locals().get("started", [False]))
            elif self._was_released_at_end(error):
                return
            raise

    def _release(self, n: int, started: list[bool]) -> None:
        """Release ``n`` permits. Once ``started[0]`` is set, an interrupt cannot stop it."""
        core = self._core
        mine = isinstance(core, LEASES) and len(core.grants) >= n
        if mine:
            seconds = self.client.settings.session_timeout  # before the protocol exists, which an interrupt would leak
            self._run(self._releasing(core, n, started), seconds)
        else:
            self._ask(self._releasing(core, n, started))

    def _release_anyway(self, n: int, started: list[bool]) -> None:
        """Complete an interrupted release whose protocol had not started."""
        if not started[0]:
            started[0] = True
            core, owner = self._core, current_owner()
            for grant in of_owner(core.grants, owner, n) if isinstance(core, LEASES) else ():
                self._drop(core, grant)
                n -= 1
            if n:
                self.client.background(self._releasing(core, n, started))

    def _acquiring(self, core: AnyCore, blocking: bool) -> Coroutine[Any, Any, Any]:
        """Return the protocol of an acquire."""
        data, owner = describe(), current_owner()
        return self._using(core, lambda: core.acquire(data, blocking, owner, self._bound(core)))

    def _dropping(self, core: AnyCore, grant: Grant) -> Coroutine[Any, Any, None]:
        """Return the protocol that releases the permit of an interrupted call."""
        assert isinstance(core, LEASES)
        return core.force_release(grant)

    def _releasing(self, core: AnyCore, n: int, started: list[bool]) -> Coroutine[Any, Any, Any]:
        """Return the protocol of a release."""
        owner = current_owner()
        return self._changing(core, n, lambda: core.release(n, self._bound(core), started, owner))

    def _changing(
        self, core: AnyCore, n: int, release: Callable[[], Coroutine[Any, Any, Any]]
    ) -> Coroutine[Any, Any, Any]:
        """Return the protocol of a release. It depends on the number of permits if new ones are added."""
        is_held = isinstance(core, LEASES) and len(core.grants) >= n
        return release() if is_held else self._using(core, release)

    def get_value(self, *, timeout: float | None = None) -> int:
        """Return the number of free permits.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The number, which may change at any time.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs 2 requests in 1 round trip.
        """
        core = self._core
        return int(self._ask(self._using(core, core.value), timeout))

    @interruptible_at_entry
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            started = [False]
            depth = self._blocks.depth(current_owner())
            if self._blocks.was_entered_here(depth):
                self._blocks.set_depth(current_owner(), depth - 1)
                exit_context(lambda: self._release(1, started), error)
            else:
                exit_context(self._refuse_release, error)
        except BaseException as failure:
            if not isinstance(failure, DistsyncError) or is_from_handler(failure):
                depth = locals().get("depth", self._blocks.depth(current_owner()))
                if self._blocks.was_entered_here(depth):
                    self._blocks.set_depth(current_owner(), depth - 1)
                    self._release_anyway(1, locals().get("started", [False]))
            elif self._was_released_at_end(failure):
                return
            raise

    def _refuse_release(self) -> None:
        """Raise NotHeldError at the end of a block that a parent process has entered."""
        raise NotHeldError(f"cannot release {self.path}: it was acquired by a parent process")

    def __repr__(self) -> str:
        bound = f"/{self._initial}" if isinstance(self, BoundedSemaphore) else ""
        value = f"{repr_state(self, lambda: self._core.value(), self._initial)}{bound}"
        # CPython's tests expect one word before the name of the class
        return f"<distsync.{type(self).__qualname__} at {id(self):#x}: value={value}>"


class BoundedSemaphore(Semaphore):
    """A semaphore with a maximum, like ``threading.BoundedSemaphore``.

    A release that would make more than ``value`` permits free raises OverReleaseError. The permit
    of a holder that exits is released even if another process has released it before.

    Args:
        value: Initial and maximum number of free permits, the same for all processes that use the
            name at the same time; 0 makes a signal, which can then never be released.
        name: Name of the semaphore, shared by all processes that use it. Without a name, a
            semaphore assigned at module or class level is named after its variable; any other
            semaphore gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the semaphore's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_lost: Called with a LockLostError, in a thread of distsync's own, if a permit is lost
            while it is held. None calls nothing.
        layout: Naming scheme of the znodes: ``"distsync"``, ``"kazoo"`` to share the permits with
            kazoo's own Semaphore, or ``"curator"`` to share them with Curator's
            InterProcessSemaphoreV2.
        on_mismatch: What the first use does while other processes use another number: ``"error"``
            raises MismatchError, ``"wait"`` waits until they have ended or dropped the object, and
            ``"adopt"`` uses their number. If none does, ``value`` is taken over in each case.

    Raises:
        ValueError: ``value`` is negative.
        TypeError: ``value`` is not an integer, ``on_lost`` is not callable, or both a name and a
            path are given.
        ConfigurationError: ``acl``, ``layout`` or ``on_mismatch`` is not valid, ``value`` is 0 with
            a layout other than ``"distsync"``, or ``on_mismatch`` is given with either of them.

    Note:
        Costs, losses, fairness and znodes are those of Semaphore.

        Source: ZooKeeper recipes, "Locks", with a limit; ``threading.BoundedSemaphore``.

    Example:
        >>> slots = BoundedSemaphore(2, name="bounded slots")
        >>> slots.acquire()
        True
        >>> slots.release()
    """

    __module__ = "distsync.threading"

    def _bound(self, core: AnyCore) -> int | None:
        return core.initial
