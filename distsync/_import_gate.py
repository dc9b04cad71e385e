"""Imports inside of functions, for whose end forks wait.

A forked child inherits a module that another thread was importing as it was then, and its import lock
locked. So imports inside of functions are made within `importing()`, and `os.fork()` waits for them.

The package imports this module first, and it imports nothing of distsync: a thread that imports a
submodule may hold that module's import lock while it waits for the package.
"""

from __future__ import annotations

import logging  # noqa: F401  its lock must be registered for forks first, and so be acquired last
import os
import threading
from collections.abc import Callable

#: Maximum wait in seconds of a fork for imports in other threads, and of an import for the fork.
IMPORT_S = 5.0


class ImportGate:
    """Lets any number of threads import modules, or one thread fork.

    Threads that import do not wait for each other: they may already hold Python's own locks of modules.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # entered itself: an interrupt in Condition.__enter__ would leave it locked
        self._changed = threading.Condition(self._lock)
        self._importing: dict[int, int] = {}
        self._forking: int | None = None

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._lock:
            # limited: an interrupt can keep a fork from calling open()
            self._changed.wait_for(lambda: self._forking in (None, me), IMPORT_S)
            self._importing[me] = self._importing.get(me, 0) + 1

    def __exit__(self, *_: object) -> None:
        me = threading.get_ident()
        with self._lock:
            count = self._importing.pop(me, 0) - 1  # a signal handler that imports may have removed it
            if count > 0:
                self._importing[me] = count
            self._changed.notify_all()

    def close(self, seconds: float) -> None:
        """Wait up to ``seconds`` for the imports of other threads, and hold up new ones until `open`."""
        me = threading.get_ident()
        with self._lock:
            self._changed.wait_for(lambda: self._forking is None and not self._importing.keys() - {me}, seconds)
            self._forking = me

    def open(self) -> None:
        """Let threads import again."""
        with self._lock:
            self._forking = None
            self._changed.notify_all()


#: Called before each fork, in this order, once the fork has waited for imports. A module that is imported later adds
#: its function here: a hook that it registers while a fork waits for its import would not run in that fork.
before_fork: list[Callable[[], object]] = []

#: The gate of each process, by process id. A thread of the parent may hold the parent's.
_gates: dict[int, ImportGate] = {}


def importing() -> ImportGate:
    """Return a context manager for an import inside of a function, for whose end forks wait."""
    pid = os.getpid()
    return _gates.get(pid) or _gates.setdefault(pid, ImportGate())


def _before_fork() -> None:
    try:
        importing().close(IMPORT_S)
    finally:
        for callback in tuple(before_fork):
            callback()


def _after_fork_in_parent() -> None:
    importing().open()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_gates.clear)
