"""What Election, Group, Registry and Config share: a state that others change, and that one may wait for or be told of.

Rules for this file: no znode; each method checks its arguments as the stdlib does and runs one protocol.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from distsync.errors import DeadlineError
from distsync.glances import Glancing
from distsync.named import checked_seconds
from distsync.protocols.watched import UNKNOWN, Listener
from distsync.session.clock import wait_clock

Result = TypeVar("Result")


class Observed(Glancing):
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
        return bool(self._run(self._watched.next(), checked_seconds(timeout)))

    def _tell(self, listener: Listener, before: Any = UNKNOWN) -> Listener:
        """``listener(before, now)`` is called with each change, in a thread of distsync's own. Never waits."""

        def told(before: Any, now: Any) -> None:
            reported(listener, before, now)

        self.client.background(self._watched.tell(told, before))
        return told


class Awaited(Observed):
    """As Observed, and in the shape of a Condition."""

    def wait_for(self, predicate: Callable[[], Result], timeout: float | None = None) -> Result:
        """``predicate()`` is true, or the time is over; it is asked at first, and after each change.

        Units: seconds; None: without end.
        Returns: what ``predicate`` returned last.
        On loss, On cancel, Cost, Source: as wait.
        """
        seconds = checked_seconds(timeout)
        deadline = None if seconds is None else wait_clock() + seconds
        watched = self._watched
        while True:
            try:
                seen = self._run(watched.get(), _remaining(deadline))
            except DeadlineError:
                return predicate()
            result = predicate()
            if result or not self._run(watched.changed(seen), _remaining(deadline)):
                return result


def reported(function: Callable[..., object], *args: Any) -> None:
    """``function`` is called; what it raises is reported as a thread's death is, and stops nothing else."""
    try:
        function(*args)
    except Exception:
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


def _remaining(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - wait_clock())
