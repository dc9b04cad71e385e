"""Base of Event, Election, Group, Registry and Config: state that others change, to read, await and listen to.

Rules for this file: no znode, and no decision that _protocols/state/watch_cache.py does not make. A copy that a watch
keeps current is read without a protocol; in any other case CachedRead returns nothing, and a protocol reads the state.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from distsync._client.deadlines import deadline_in, limit_reads, remaining
from distsync._client.default_client import current
from distsync._objects.validation import validate_timeout
from distsync._protocols.state.watch_cache import UNKNOWN, Listener, WatchCache
from distsync.errors import DeadlineError

if TYPE_CHECKING:
    from distsync._client.client import Client


class CachedRead:
    """One watched state, as one object looks at it."""

    __slots__ = ("client", "core", "uses_default_client", "watched")

    def __init__(self, watched: WatchCache[Any], client: Client, uses_default_client: bool) -> None:
        """``uses_default_client``: the client is the default one, whichever that is."""
        self.watched, self.client, self.uses_default_client = watched, client, uses_default_client
        #: A client that is closed, or in a forked child, has another one or none.
        self.core = client._core

    def look(self) -> list[Any]:
        """The state; empty if a protocol has to look.

        The watch is taken before the copy, as a look writes them the other way round: the copy is at least as new, and
        current if the watch has not fired after that.
        """
        client, core = self.client, self.core
        if core is None or client._core is not core or core.closing:
            return []
        if self.uses_default_client and current.client is not client:
            return []
        watch = self.watched._watch
        copy = self.watched._copy
        return [] if watch.fired else copy


Result = TypeVar("Result")


class Observable:
    """Mixin of a `SharedObject` whose state a watch keeps: read it, wait for its changes, listen to them."""

    _glance: CachedRead | None = None

    if TYPE_CHECKING:
        _run: Callable[..., Any]
        _read: Callable[..., Any]
        _explicit_client: Client | None

        @property
        def client(self) -> Client: ...

    @property
    def _watched(self) -> WatchCache[Any]:
        """The watched state."""
        raise NotImplementedError

    def _seen(self, sync: bool = False) -> Any:
        """Return the state: the copy that the watch keeps current, or a read.

        Args:
            sync: Whether to ask the leader of the ensemble.
        """
        glance = self._glance
        if glance is not None and not sync and (copy := glance.look()):
            return copy[0]
        client, watched = self.client, self._watched
        value = self._read(watched.get(sync))
        self._glance = CachedRead(watched, client, self._explicit_client is None)
        return value

    def wait(self, timeout: float | None = None) -> bool:
        """It is another state than when the call began.

        Units: seconds; None: without end.
        Returns: True; False if not in time.
        On loss: of the session: it goes on waiting.
        On cancel: nothing is left behind.
        Cost: that of looking, for each change; 1 watch.
        Source: ``threading.Condition``; a lock need not be held.
        """
        return bool(self._run(self._watched.next(), validate_timeout(timeout)))

    def _add_listener(self, listener: Listener, before: Any = UNKNOWN) -> Listener:
        """Call ``listener(before, now)`` at each change, in a thread of distsync's own. Never waits."""

        def notify(before: Any, now: Any) -> None:
            call_logged(listener, before, now)

        self.client.background(self._watched.add_listener(notify, before))
        return notify

    def _remove_listener(self, listener: Listener) -> None:
        """Stop calling ``listener``, once what was asked before has been done. Never waits."""
        self.client.background(self._watched.remove_listener(listener))


class PredicateWaitable(Observable):
    """Observable state with the waits of a Condition."""

    def wait_for(self, predicate: Callable[[], Result], timeout: float | None = None) -> Result:
        """``predicate()`` is true, or the time is over; it is asked at first, and after each change.

        Units: seconds; None: without end. What the predicate looks at is looked at in that time too.
        Returns: what ``predicate`` returned last; False if no server answered in time.
        On loss, On cancel, Cost, Source: as wait.
        """
        deadline = deadline_in(validate_timeout(timeout))
        watched = self._watched
        result: Any = False
        while True:
            try:
                state = self._run(watched.get(), remaining(deadline))
                with limit_reads(deadline):
                    result = predicate()
            except DeadlineError:
                if remaining(deadline) != 0:  # the predicate's own
                    raise
                return result  # type: ignore[no-any-return]
            if result or not self._run(watched.changed(state), remaining(deadline)):
                return result  # type: ignore[no-any-return]


def call_logged(function: Callable[..., object], *args: Any) -> None:
    """``function`` is called; what it raises is reported as a thread's death is, and stops nothing else."""
    try:
        function(*args)
    except Exception:
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
