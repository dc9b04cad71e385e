"""``synchronized``: a function, method or coroutine that runs under a lock.

Rules for this file: any lock with ``with`` will do, distsync's or the standard library's. It costs nothing to import.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class synchronized:
    """Whatever is decorated runs while the lock is held; ``with`` holds it for a block.

    A function, a method, a classmethod, a staticmethod or a coroutine function; signature and docstring stay. ``lock``
    is anything that ``with`` takes. A generator is refused: it runs when its call has returned.
    Raises: what ``with lock`` raises: LockLostError at the end, if it was lost while held and the function has not
        raised anything itself.
    On loss: as the lock. What was called runs to its end; ``lock.held`` tells it.
    On cancel: of a coroutine that waits: no znode is left.
    Cost: as ``with lock``. A coroutine takes one thread for each call, while the lock is waited for and held.
    Fair: as the lock.
    Source: ``wrapt.synchronized``.

    A coroutine waits in a thread, so that its event loop does not. Its task is the owner of an RLock: a call inside
    of the call, in the same task, may take it again; another task waits.

    >>> from distsync import Lock, synchronized
    >>> @synchronized(Lock(name="report"))
    ... def report():
    ...     return "written by one at a time"
    >>> report()
    'written by one at a time'
    """

    __module__ = "distsync"

    def __init__(self, lock: Any) -> None:
        if not hasattr(type(lock), "__enter__") or not hasattr(type(lock), "__exit__"):
            kind, twin = type(lock), ", but its twin will do" if hasattr(lock, "twin") else ""
            raise TypeError(f"synchronized(lock) needs a lock, not {kind.__module__}.{kind.__qualname__}{twin}")
        self._lock = lock

    def __call__(self, function: Function) -> Function:
        """``function`` under the lock. Raises: TypeError for a generator function, and for what is no function."""
        inside = function.__func__ if isinstance(function, staticmethod | classmethod) else function
        if not callable(inside) or isinstance(inside, type):
            raise TypeError(f"a function can be synchronized, not {inside!r}")
        if inspect.isgeneratorfunction(inside) or inspect.isasyncgenfunction(inside):
            raise TypeError(f"{inside.__qualname__} is a generator: take the lock inside of it")
        wrapper = self._wait if inspect.iscoroutinefunction(inside) else self._call
        from distsync._objects.synchronized_wrappers import SynchronizedFunction

        return SynchronizedFunction(function, wrapper)  # type: ignore[return-value]

    def _call(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        with self._lock:
            return wrapped(*args, **kwargs)

    async def _wait(
        self, wrapped: Callable[..., Coroutine[Any, Any, Any]], instance: Any, args: Any, kwargs: Any
    ) -> Any:
        async with self:
            return await wrapped(*args, **kwargs)

    def __enter__(self) -> Any:
        """The lock is held."""
        return self._lock.__enter__()

    def __exit__(self, *error: Any) -> Any:
        """The lock is let go."""
        return self._lock.__exit__(*error)

    async def __aenter__(self) -> Any:
        """The lock is held by this task; the loop was never blocked."""
        from distsync._objects.synchronized_wrappers import hand_of

        return await hand_of(self._lock).acquire()

    async def __aexit__(self, *error: Any) -> Any:
        """The lock is let go."""
        from distsync._objects.synchronized_wrappers import hand_of

        return await hand_of(self._lock).release(error)
