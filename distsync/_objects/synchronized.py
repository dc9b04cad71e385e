"""``synchronized``: a function, method or coroutine function that runs while a lock is held.

Any lock that supports ``with`` can be used, distsync's or the standard library's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class synchronized:
    """A decorator that runs a function while a lock is held; also a context manager.

    It decorates a function, method, classmethod, staticmethod or coroutine function, and preserves
    its signature and docstring. A generator function is refused, because it would run after its
    call has returned.

    A coroutine function waits for the lock in a thread of its own, so that the event loop is not
    blocked. Its task is the owner of an RLock: a nested call in the same task may acquire the lock
    again, while another task waits.

    Args:
        lock: Any object that ``with`` accepts.

    Raises:
        TypeError: ``lock`` is not a lock.

    Note:
        Costs as many requests as ``with lock``. A coroutine function uses one thread for each call,
        while it waits for the lock and holds it.

        A decorated call raises what ``with lock`` raises. If the lock was lost while held, and the
        function has not raised anything itself, that is LockLostError at its end. The function runs
        to its end even if the lock is lost; read ``lock.held`` to notice it. If a waiting coroutine
        is cancelled, no znode is left behind. Fairness is that of the lock.

        Source: ``wrapt.synchronized``.

    Example:
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
        """Return ``function`` wrapped so that it runs while the lock is held.

        Args:
            function: A function, method, classmethod, staticmethod or coroutine function.

        Returns:
            The wrapped function.

        Raises:
            TypeError: ``function`` is a generator function, or not a function.
        """
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
        """Acquire the lock.

        Returns:
            The result of the lock's ``__enter__()``.
        """
        return self._lock.__enter__()

    def __exit__(self, *error: Any) -> Any:
        """Release the lock.

        Args:
            *error: Type, value and traceback of the exception of the block; None without one.

        Returns:
            The result of the lock's ``__exit__()``.
        """
        return self._lock.__exit__(*error)

    async def __aenter__(self) -> Any:
        """Acquire the lock for the current task, without blocking the event loop.

        Returns:
            The result of the lock's ``__enter__()``.
        """
        from distsync._objects.synchronized_wrappers import hand_of

        return await hand_of(self._lock).acquire()

    async def __aexit__(self, *error: Any) -> Any:
        """Release the lock.

        Args:
            *error: Type, value and traceback of the exception of the block; None without one.

        Returns:
            The result of the lock's ``__exit__()``.
        """
        from distsync._objects.synchronized_wrappers import hand_of

        return await hand_of(self._lock).release(error)
