"""Semaphore and BoundedSemaphore.

Rules for this file: no znode; each method checks its arguments as the stdlib does and runs one protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from distsync._client.contender_info import Contender, describe
from distsync._objects.base import current_owner, exit_context, parse_contenders
from distsync._objects.ownership import Ownable, repr_state
from distsync._objects.validation import validate_layout, validate_timeout
from distsync._protocols.locks.lock import Grant
from distsync._protocols.semaphores.consumable import SignalCore
from distsync._protocols.semaphores.foreign_layouts import CuratorSemaphoreCore, KazooSemaphoreCore, PoolSemaphoreCore
from distsync._protocols.semaphores.leases import SemaphoreCore
from distsync.errors import ConfigurationError, DistsyncError, LockLostError, MismatchError

if TYPE_CHECKING:
    from distsync._client.client import Client

AnyCore = SemaphoreCore | SignalCore | PoolSemaphoreCore
LEASES = (SemaphoreCore, PoolSemaphoreCore)
POOLS = {"curator": CuratorSemaphoreCore, "kazoo": KazooSemaphoreCore}


class Semaphore(Ownable):
    """A number of permits. A permit whose holder's process dies comes back.

    ``Semaphore(0)`` is a signal: a permit taken is used up for good, whoever dies. With ``layout="kazoo"`` permits are
    shared with kazoo's own Semaphore, with ``layout="curator"`` with Curator's InterProcessSemaphoreV2: 9 or 8 requests
    instead of 4, and none is ever added.
    On loss: ``held`` turns False, ``on_lost`` is called, ``release`` raises LockLostError: the permit came back.
    Cost: acquire and release, 4 requests, 2 round trips.
    Fair: first come, first served.
    Source: recipes.txt, Locks, with a limit; ``threading.Semaphore``.

    Znodes: ``<namespace>/semaphore/<name>``, data: the permits, ``.../_c_<guid>-lock-<sequence>``, ephemeral, a lease.

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
    ) -> None:
        if value < 0:
            raise ValueError("semaphore initial value must be >= 0")
        self._initial = value
        self._layout = validate_layout(layout, ("distsync", *POOLS))
        if value == 0 and self._layout in POOLS:
            raise ConfigurationError("value", value, f"a semaphore in {layout}'s layout has at least 1 permit")
        super().__init__(name, client, path, on_lost, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._initial,)

    def _options(self) -> dict[str, Any]:
        return {} if self._layout == "distsync" else {"layout": self._layout}

    @property
    def _bound(self) -> int | None:
        """More than so many permits are never free."""
        return None

    @property
    def _core(self) -> AnyCore:
        core: AnyCore = self._shared_state(self._make_core)
        if core.initial != self._initial:
            raise MismatchError("the initial value", self.path, core.initial, self._initial)
        if (type(core) if isinstance(core, PoolSemaphoreCore) else None) is not POOLS.get(self._layout):
            raise MismatchError("the layout", self.path, "another one", self._layout)
        return core

    def _make_core(self, path: str) -> AnyCore:
        if self._layout in POOLS:
            return POOLS[self._layout](path, self._initial)
        if self._initial == 0:
            return SignalCore(path, self._receipts)
        return SemaphoreCore(path, self._initial, self._receipts)

    def _grant(self) -> Grant | None:
        """This thread's latest, else the latest of this process."""
        core, owner = self._core, current_owner()
        grants = tuple(core.grants) if isinstance(core, LEASES) else ()
        mine = [grant for grant in grants if grant.owner is owner] or grants
        return mine[-1] if mine else None

    def _capacity(self) -> int:
        core = self._core
        return self._read(core.capacity()) if isinstance(core, LEASES) else 0

    def holders(self) -> list[Contender]:
        """Who holds a permit now.

        Cost: 2 requests and 1 for each contender.
        """
        core = self._core
        return parse_contenders(self._read(core.leases())) if isinstance(core, PoolSemaphoreCore) else super().holders()

    def waiters(self) -> list[Contender]:
        """Who waits for one, first in line first.

        Cost: 2 requests and 1 for each contender.
        """
        return self._line() if self._layout in POOLS else super().waiters()

    def _folder(self) -> str:
        core = self._core
        if isinstance(core, PoolSemaphoreCore):
            return core.wait_queue_path
        return core.takers if isinstance(core, SignalCore) else self.path

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """A permit is taken.

        Units: seconds; None: without end.
        Returns: True; False if none was free and ``blocking`` is False, or not in time.
        Raises: ValueError for a time-out that does not block; MismatchError when others made it with another value.
        On loss: of the session while waiting: it stands in line anew.
        On cancel: no znode is left, no permit is taken.
        Cost: 3 requests, 1 round trip, if one is free.
        Fair: first come, first served.
        Source: recipes.txt, Locks.
        """
        if not blocking and timeout is not None:
            raise ValueError("can't specify timeout for non-blocking acquire")
        seconds = validate_timeout(timeout, blocking=blocking)
        before: list[tuple[Grant, ...]] = []
        acquired = False
        try:
            core = self._core
            before.append(tuple(core.grants) if isinstance(core, LEASES) else ())
            acquired = bool(self._run(self._acquiring(core, blocking), seconds))
            if acquired:
                self._register_loss_callback()
            return acquired
        except DistsyncError:
            raise
        except BaseException:
            self._undo(before, acquired)
            raise

    __enter__ = acquire

    def _undo(self, before: list[tuple[Grant, ...]], acquired: bool) -> None:
        """An acquire was interrupted, perhaps after its protocol: it has not happened."""
        if not before:
            return
        core, owner = self._core, current_owner()
        if isinstance(core, SignalCore):
            if acquired:
                self.client.background(core.release())
            return
        for grant in tuple(core.grants):
            if grant.owner is owner and grant not in before[0]:
                self.client.background(self._dropping(core, grant))

    def release(self, n: int = 1) -> None:
        """``n`` permits are free again: first those that this thread acquired, then those of this process, then new.

        Raises: ValueError for ``n`` below 1; LockLostError if a permit had been lost while held.
        Cost: 1 request for a permit held; 3 for new ones, 5 for one too many of a BoundedSemaphore.
        Source: ``threading.Semaphore``.
        """
        if n < 1:
            raise ValueError("n must be one or more")
        self._release(n, [False])

    def _release(self, n: int, started: list[bool]) -> None:
        """``started`` says when the protocol has begun, which then goes to its end whatever interrupts it."""
        try:
            core = self._core
            mine = isinstance(core, LEASES) and len(core.grants) >= n
            self._run(self._releasing(core, n, started), self.client.settings.session_timeout if mine else None)
        except DistsyncError:
            raise
        except BaseException:
            self._release_anyway(n, started)
            raise

    def _release_anyway(self, n: int, started: list[bool]) -> None:
        """A release was interrupted: if its protocol did not begin, it does so now."""
        if not started[0]:
            started[0] = True
            self.client.background(self._releasing(self._core, n, started))

    def _acquiring(self, core: AnyCore, blocking: bool) -> Coroutine[Any, Any, Any]:
        """The protocol of an acquire."""
        return core.acquire(describe(), blocking, current_owner(), self._bound)

    def _dropping(self, core: AnyCore, grant: Grant) -> Coroutine[Any, Any, None]:
        """The protocol that gives back what an interrupted acquire had taken."""
        assert isinstance(core, LEASES)
        return core.force_release(grant)

    def _releasing(self, core: AnyCore, n: int, started: list[bool]) -> Coroutine[Any, Any, None]:
        """The protocol of a release."""
        return core.release(n, self._bound, started, current_owner())

    def get_value(self) -> int:
        """How many permits are free now.

        Cost: 2 requests, 1 round trip.
        """
        return int(self._read(self._core.value()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        begun = [False]
        try:
            exit_context(lambda: self._release(1, begun), error)
        except DistsyncError:
            raise
        except BaseException:
            self._release_anyway(1, begun)
            raise

    def __repr__(self) -> str:
        bound = "" if self._bound is None else f"/{self._bound}"
        value = f"{repr_state(self, lambda: self._core.value())}{bound}"
        # CPython's tests expect one word before the name of the class
        return f"<distsync.{type(self).__qualname__} at {id(self):#x}: value={value}>"


class BoundedSemaphore(Semaphore):
    """A semaphore that is never released more often than acquired.

    The permit of a holder who dies comes back, also if somebody else has released it before.
    On loss, Cost, Fair, Znodes: as Semaphore.
    Source: recipes.txt, Locks, with a limit; ``threading.BoundedSemaphore``.

    >>> slots = BoundedSemaphore(2, name="bounded slots")
    >>> slots.acquire()
    True
    >>> slots.release()
    """

    __module__ = "distsync.threading"

    @property
    def _bound(self) -> int | None:
        return self._initial
