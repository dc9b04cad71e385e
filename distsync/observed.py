"""What Election, Group, Registry and Config share: a state that others change, and that one may wait for or be told of.

Rules for this file: no znode; each method checks its arguments as the stdlib does and runs one protocol.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from distsync.errors import DeadlineError
from distsync.glances import CachedReader
from distsync.limits import deadline_in, limit_reads, remaining
from distsync.named import validate_condition_timeout
from distsync.protocols.watched import UNKNOWN, Listener

Result = TypeVar("Result")


class Observable(CachedReader):
    """Beside a Named: waiting for changes of what ``_watched`` keeps."""

    def wait(self, timeout: float | None = None) -> bool:
        """It is another state than when the call began.

        Units: seconds; None: without end.
        Returns: True; False if not in time.
        On loss: of the session: it goes on waiting.
        On cancel: nothing is left behind.
        Cost: that of looking, for each change; 1 watch.
        Source: ``threading.Condition``; a lock need not be held.
        """
        return bool(self._run(self._watched.next(), validate_condition_timeout(timeout)))

    def _add_listener(self, listener: Listener, before: Any = UNKNOWN) -> Listener:
        """``listener(before, now)`` is called with each change, in a thread of distsync's own. Never waits."""

        def told(before: Any, now: Any) -> None:
            call_logged(listener, before, now)

        self.client.background(self._watched.add_listener(told, before))
        return told

    def _remove_listener(self, listener: Listener) -> None:
        """It is told no more, soon: behind what asked for it. Never waits."""
        self.client.background(self._watched.remove_listener(listener))


class PredicateWaitable(Observable):
    """As Observable, and in the shape of a Condition."""

    def wait_for(self, predicate: Callable[[], Result], timeout: float | None = None) -> Result:
        """``predicate()`` is true, or the time is over; it is asked at first, and after each change.

        Units: seconds; None: without end. What the predicate looks at is looked at in that time too.
        Returns: what ``predicate`` returned last; False if no server answered in time.
        On loss, On cancel, Cost, Source: as wait.
        """
        deadline = deadline_in(validate_condition_timeout(timeout))
        watched = self._watched
        result: Any = False
        while True:
            try:
                seen = self._run(watched.get(), remaining(deadline))
                with limit_reads(deadline):
                    result = predicate()
            except DeadlineError:
                if remaining(deadline) != 0:  # the predicate's own
                    raise
                return result  # type: ignore[no-any-return]
            if result or not self._run(watched.changed(seen), remaining(deadline)):
                return result  # type: ignore[no-any-return]


def call_logged(function: Callable[..., object], *args: Any) -> None:
    """``function`` is called; what it raises is reported as a thread's death is, and stops nothing else."""
    try:
        function(*args)
    except Exception:
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
