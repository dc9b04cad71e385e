"""Base of Event, Election, Group, Registry and Config: state that is kept current by a watch.

A copy that a watch keeps current is read without a protocol. In any other case CachedRead returns
nothing, and a protocol reads the state. All decisions are made in
_protocols/state/watch_cache.py.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from os import getpid
from typing import TYPE_CHECKING, Any, TypeVar

from distsync._client.deadlines import deadline_in, limit_predicate, remaining
from distsync._client.default_client import current
from distsync._objects.validation import validate_callback, validate_timeout
from distsync._protocols.state.watch_cache import UNKNOWN, Listener, WatchCache
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import DeadlineError

if TYPE_CHECKING:
    from distsync._client.client import Client


class CachedRead:
    """A watched state, read by one object without a protocol.

    Args:
        watched: The watched state.
        client: The client of the object.
        uses_default_client: Whether ``client`` is the default client, which another may replace.
    """

    __slots__ = ("client", "pid", "runtime", "uses_default_client", "watched")

    def __init__(self, watched: WatchCache[Any], client: Client, uses_default_client: bool) -> None:
        self.watched, self.client, self.uses_default_client = watched, client, uses_default_client
        #: A client that was closed, or that is used in a forked child, has another runtime or none.
        self.runtime, self.pid = client._runtime, getpid()

    def look(self) -> list[Any]:
        """Return a list of the state, or an empty one if a protocol must read it.

        The watch is read before the copy, because a protocol writes them in the opposite order. The
        copy is therefore at least as new as the watch, and current if the watch has not fired
        afterwards.
        """
        client, runtime = self.client, self.runtime
        if runtime is None or self.pid != getpid() or client._latest_runtime is not runtime or runtime.closing:
            return []
        if self.uses_default_client and current.client is not client:
            return []
        watch = self.watched._watch
        copy = self.watched._copy
        return [] if watch.fired else copy


Result = TypeVar("Result")


class Observable:
    """Mixin of a `SharedObject` with a watched state: reads, waits and listeners."""

    _glance: CachedRead | None = None
    #: The state to which the latest listener was added.
    _listened: WatchCache[Any] | None = None

    if TYPE_CHECKING:
        _run: Callable[..., Any]
        _ask: Callable[..., Any]
        _late: Callable[[], bool]
        _explicit_client: Client | None

        @property
        def client(self) -> Client: ...

    @property
    def _watched(self) -> WatchCache[Any]:
        """The watched state."""
        raise NotImplementedError

    def _seen(self, sync: bool = False, timeout: float | None = None) -> Any:
        """Return the state: the copy that the watch keeps current, or the result of a read.

        Args:
            sync: Whether to ask the leader of the ensemble.
            timeout: The caller's timeout for a read, as in `SharedObject._ask`.

        Returns:
            The state.
        """
        if timeout is not None:
            validate_timeout(timeout, "call")  # also if nothing has to be read
        glance = self._glance
        if glance is not None and not sync and (copy := glance.look()):
            return copy[0]
        client, watched = self.client, self._watched
        value = self._ask(watched.get(sync, client.is_in_call()), timeout)
        self._glance = CachedRead(watched, client, self._explicit_client is None)
        return value

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the state differs from what it was when the call began.

        Args:
            timeout: Maximum wait in seconds; 0 looks once, None waits forever.

        Returns:
            True if the state has changed; False on timeout.

        Note:
            Costs as many requests as a read of the state, once at first and once for each change,
            and 1 watch. No lock needs to be held.

            If the session ends, the wait continues in the next one. If interrupted, nothing is left
            behind.

            Source: ``threading.Condition``.
        """
        seconds = validate_timeout(timeout)
        return bool(self._run(self._watched.wait_for_change(self.client.is_in_call()), seconds)) or self._late()

    def _add_listener(self, listener: Listener, before: Any = UNKNOWN) -> Listener:
        """Call ``listener(before, now)`` at each change, in a thread of distsync's own.

        This never waits.
        """

        def notify(before: Any, now: Any) -> None:
            call_logged(listener, before, now)

        self._listened = watched = self._watched
        self.client.background(watched.add_listener(notify, before))
        return notify

    def _is_listened(self) -> bool:
        """Return whether the latest listener was added to the present state.

        It is not in a forked child, and after another client has become the default one.
        """
        return self._listened is self._watched

    def _remove_listener(self, listener: Listener) -> None:
        """Stop calling ``listener``, once earlier registrations have taken effect.

        This never waits.
        """
        self.client.background(self._watched.remove_listener(listener))


class PredicateWaitable(Observable):
    """Mixin of observable state with the waits of a Condition."""

    def wait_for(self, predicate: Callable[[], Result], timeout: float | None = None) -> Result:
        """Wait until ``predicate()`` is true, evaluating it now and after each change.

        Args:
            predicate: Called without arguments. Reads of shared objects in it are limited by
                ``timeout`` too.
            timeout: Maximum wait in seconds; None waits forever.

        Returns:
            What ``predicate`` returned last; False if no server answered in time.

        Note:
            Costs as many requests as `wait`, and those of the predicate.

            If the session ends, the wait continues in the next one. If interrupted, nothing is left
            behind.

            Source: ``threading.Condition``; no lock needs to be held.
        """
        deadline = deadline_in(validate_timeout(timeout))
        watched, alone = self._watched, self.client.is_in_call()
        result: Any = False
        while True:
            try:
                seconds = remaining(deadline)
                state = self._run(watched.get(alone=alone), seconds)
                with limit_predicate(deadline):
                    result = predicate()
            except DeadlineError as error:
                raise_if_from_handler(error)
                if remaining(deadline) != 0:  # the predicate's own deadline has passed, not that of this call
                    raise
                self._late()
                return result  # type: ignore[no-any-return]
            seconds = remaining(deadline)
            if result or not (self._run(watched.changed(state, alone), seconds) or self._late()):
                return result  # type: ignore[no-any-return]


#: Called with the state before and after a change.
OnChange = Callable[[Any, Any], Any]


class ReportsChanges(Observable):
    """Mixin of observable state with the callback ``on_change``."""

    _on_change: OnChange | None = None
    _listener: Listener | None = None

    @property
    def on_change(self) -> OnChange | None:
        """The callback for changes, called with the state before and after each; None calls nothing.

        It is called in a thread of distsync's own. A new callback is called for changes from then
        on. A forked child has to set it again.

        Note:
            Setting it sends 1 request in the background. Each change costs 1 request.
        """
        return self._on_change

    @on_change.setter
    def on_change(self, callback: OnChange | None) -> None:
        self._on_change = validate_callback("on_change", callback)
        if callback is not None and (self._listener is None or not self._is_listened()):
            self._listener = self._add_listener(self._report_change)
        elif callback is None and self._listener is not None:
            self._remove_listener(self._listener)
            self._listener = None

    def _report_change(self, before: Any, now: Any) -> None:
        """Call the callback with what it shows of the two states."""
        raise NotImplementedError


def call_logged(function: Callable[..., object], *args: Any) -> None:
    """Call ``function``. An exception is reported like that of a thread, and stops nothing else."""
    try:
        function(*args)
    except (Exception, SystemExit) as error:
        raise_if_from_handler(error)
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
