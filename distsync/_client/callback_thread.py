"""Threads for the user's callbacks: a callback that takes long delays the others by a limited time only.

One thread calls the callbacks, one after another. A second one gives them to it, and waits for each.
If a callback does not return within CALLBACK_S, it stays alone with its thread, and another thread
calls the later ones. So the callbacks begin in the order of their events in any case.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from distsync._client.own_threads import join
from distsync._log import OwnLogger
from distsync._protocols.steps import Several

logger = OwnLogger("distsync.client")

#: Seconds that a callback may take before later ones are called by another thread. Far longer than
#: a callback that only notifies the program takes, and shorter than most session timeouts.
CALLBACK_S = 5.0

PACKAGE = __name__.partition(".")[0]


class _Task(NamedTuple):
    """A function to call, and what to call if it takes too long."""

    function: Callable[[], object]
    on_late: Callable[[], object] | None = None


class _Caller:
    """A thread that calls functions."""

    def __init__(self, name: str, threads: set[threading.Thread]) -> None:
        self.tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self.results: SimpleQueue[object] = SimpleQueue()
        self._threads = threads
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        threads.add(self.thread)
        try:
            self.thread.start()
        except BaseException:
            threads.discard(self.thread)
            raise

    def _run(self) -> None:
        try:
            while (task := self.tasks.get()) is not None:
                result = _call(task.function)
                del task  # frees what it refers to while this thread waits
                self.results.put(result)
                del result
        finally:
            self._threads.discard(self.thread)


class Dispatcher:
    """Calls functions one after another, in daemon threads that `prepare` starts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: SimpleQueue[_Task | None] = SimpleQueue()
        self._start_lock = threading.RLock()  # reentrant for signal handlers
        self._thread: threading.Thread | None = None
        self._callers: set[threading.Thread] = set()
        self._stopped = False

    def prepare(self) -> None:
        """Start the threads. From then on ``call`` works in any thread, and while a lock is held."""
        with self._start_lock:
            if self._thread is None and not self._stopped:
                caller = _Caller(self._name, self._callers)
                self._thread = threading.Thread(
                    target=self._run, args=(caller,), name=f"{self._name}-queue", daemon=True
                )
                try:
                    self._thread.start()
                except BaseException:  # no thread is available
                    caller.tasks.put(None)
                    self._thread = None
                    raise

    def call(self, function: Callable[[], object], on_late: Callable[[], object] | None = None) -> None:
        """Call ``function`` soon. Its error is passed to threading.excepthook.

        Args:
            function: Called without arguments. It may return `Several`.
            on_late: Called if ``function`` has not returned within CALLBACK_S; None calls nothing.
        """
        self._waiting.put(_Task(function, on_late))

    def _run(self, caller: _Caller) -> None:
        following: deque[_Task] = deque()
        while (task := following.popleft() if following else self._waiting.get()) is not None:
            caller.tasks.put(task)
            try:
                result = caller.results.get(timeout=CALLBACK_S)
            except Empty:
                caller = self._replace(caller, task)
            else:
                if isinstance(result, Several):
                    following.extend(map(_Task, result.callbacks))
                del result
            del task
        caller.tasks.put(None)

    def _replace(self, late: _Caller, task: _Task) -> _Caller:
        """Return another thread for the callbacks after ``task``, which has not returned in time."""
        logger.warning(
            "the callback %s has not returned within %.0f s: other callbacks are now called by another thread; start a "
            "thread for work that takes long",
            _location(late.thread, task.function),
            CALLBACK_S,
        )
        try:
            caller = _Caller(self._name, self._callers)
        except RuntimeError as error:  # no thread is available
            logger.error("cannot start a thread for callbacks, they wait for the one that is late: %s", error)
            late.results.get()
            return late
        late.tasks.put(None)
        if task.on_late is not None:
            _call(task.on_late)
        return caller

    def is_current(self) -> bool:
        """Return whether the caller runs in one of the threads."""
        me = threading.get_ident()
        return any(thread is not None and thread.ident == me for thread in (self._thread, *tuple(self._callers)))

    def stop(self, seconds: float) -> None:
        """End the threads after the pending functions, waiting for up to ``seconds``."""
        with self._start_lock:
            self._stopped = True
        self._waiting.put(None)
        if self._thread is not None and not self.is_current():
            join(self._thread, seconds)


def _call(function: Callable[[], object]) -> object:
    """Return the result of ``function``. Report its error, and return None."""
    try:
        return function()
    except BaseException:
        _report()
        return None


def _location(thread: threading.Thread, function: Callable[[], object]) -> str:
    """Return the name, module and line of the user's function that ``thread`` runs; ``function`` if it is unknown."""
    frame: Any = sys._current_frames().get(thread.ident or 0)
    found = None
    while frame is not None and frame.f_code is not _call.__code__:
        if str(frame.f_globals.get("__name__")).partition(".")[0] != PACKAGE:
            found = frame
        frame = frame.f_back
    if found is None:
        return repr(function)
    code = found.f_code
    name = getattr(code, "co_qualname", code.co_name)
    return f"{name} of the module {found.f_globals.get('__name__')} ({code.co_filename}, line {found.f_lineno})"


def _report() -> None:
    """Report the current exception like one that ends a thread.

    The hook may be the program's own, and raise. This thread must not end then: the next callback
    may report a loss.
    """
    try:
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
    except BaseException as error:
        logger.error("threading.excepthook failed to report the exception of a callback: %r", error)
