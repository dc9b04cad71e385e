"""``synchronized``: run a function, method or coroutine function while a lock is held.

Any lock that supports ``with`` can be used, distsync's or the standard library's.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from importlib import import_module
from operator import attrgetter
from typing import Any, TypeVar

import wrapt

from distsync._objects.base import SharedObject
from distsync._objects.conditions import Condition
from distsync._objects.locks import BlockDelegate
from distsync._pickle import stable_pickle_name

Function = TypeVar("Function", bound=Callable[..., Any])


class synchronized(BlockDelegate):
    """A decorator that runs a function while a lock is held; also a context manager.

    It decorates a function, method, classmethod, staticmethod or coroutine function, and preserves
    its signature and docstring. A generator function is refused, because it would run after its
    call has returned.

    A coroutine function waits for the lock in a thread of its own, so that the event loop is not
    blocked. Its task is the owner of an RLock or SharedLock: a nested call in the same task may acquire
    the lock again, or its other side, while another task waits.

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
            kind, twin = type(lock), "; use its twin instead" if hasattr(lock, "twin") else ""
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
        return SynchronizedFunction(function, wrapper)  # type: ignore[return-value]

    def _call(self, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
        with self._lock:
            return wrapped(*args, **kwargs)

    async def _wait(
        self, wrapped: Callable[..., Coroutine[Any, Any, Any]], instance: Any, args: Any, kwargs: Any
    ) -> Any:
        async with self:
            return await wrapped(*args, **kwargs)

    def _underlying_lock(self) -> Any:
        return self._lock

    async def __aenter__(self) -> Any:
        """Acquire the lock for the current task, without blocking the event loop.

        Returns:
            The result of the lock's ``__enter__()``.
        """
        return await hand_of(self._lock).acquire(self._lock)

    async def __aexit__(self, *error: Any) -> Any:
        """Release the lock.

        Args:
            *error: Type, value and traceback of the exception of the block; None without one.

        Returns:
            The result of the lock's ``__exit__()``.
        """
        return await hand_of(self._lock).release(self._lock, error)


AGAIN_S = 0.05
"""Seconds after which a thread that is to end is notified again, because it may not have started yet.
"""


class _Bound(wrapt.BoundFunctionWrapper):  # type: ignore[type-arg]  # generic in its stubs only
    """A method of an object or class. It is pickled like any method."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        wrapped = self.__wrapped__
        owner = getattr(wrapped, "__self__", None)
        if owner is None:  # a staticmethod
            return synchronized_method, (wrapped.__module__, wrapped.__qualname__)
        return getattr, (owner, wrapped.__name__)


@stable_pickle_name
def synchronized_method(module: str, name: str) -> Any:
    """Return the method of ``module`` with this qualified name."""
    return attrgetter(name)(import_module(module))


class SynchronizedFunction(wrapt.FunctionWrapper):  # type: ignore[type-arg]
    """A function that runs under a lock and looks like the function. It is pickled by name."""

    __bound_function_wrapper__ = _Bound

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__wrapped__.__qualname__

    def __copy__(self) -> SynchronizedFunction:
        return self

    def __deepcopy__(self, memo: Any) -> SynchronizedFunction:
        return self  # like any function


class _LockThread(threading.Thread):
    """A thread that acquires, holds and releases locks for a task, and owns its RLocks."""

    def __init__(self) -> None:
        super().__init__(name="distsync-synchronized", daemon=True)
        self._depth = 0
        self._todo: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], Future[Any]] | None]
        self._todo = queue.SimpleQueue()

    def run(self) -> None:
        for work, args, future in iter(self._todo.get, None):
            try:
                future.set_result(work(*args))
            except BaseException as error:
                future.set_exception(error)
            del work, args, future  # keeps nothing alive while the thread waits for more work

    async def acquire(self, lock: Any) -> Any:
        if not self._depth:
            self.start()
        self._depth += 1
        taken = self._do(lock.__enter__)
        try:
            return await asyncio.shield(asyncio.wrap_future(taken))
        except BaseException:
            self._depth -= 1
            if not taken.done():
                _call_off(taken, lock, self.ident or 0)
            self._do(_undo, lock, taken)
            self._end()
            raise

    async def release(self, lock: Any, error: tuple[Any, ...]) -> Any:
        self._depth -= 1
        suppressed = self._do(lock.__exit__, *error)
        self._end()
        return await asyncio.shield(asyncio.wrap_future(suppressed))

    def _do(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._todo.put((work, args, future))
        return future

    def _end(self) -> None:
        if not self._depth:
            self._todo.put(None)
            _forget(self)


def _undo(lock: Any, taken: Future[Any]) -> None:
    """Release the lock, in the thread that acquires it, if an interrupted acquire has got it."""
    if taken.exception() is None:
        lock.__exit__(None, None, None)


def _call_off(taken: Future[Any], lock: Any, thread: int) -> None:
    """Interrupt a call that waits in ``thread``, if the lock is one of distsync's.

    It is repeated until the call has ended, because the call may not have started yet. Other locks
    cannot be interrupted.
    """
    interrupt = getattr(getattr(lock, "client", None), "interrupt", None)
    if interrupt is not None and not taken.done():
        interrupt(thread, asyncio.CancelledError())
        loop = asyncio.get_running_loop()
        loop.call_later(AGAIN_S, lambda: _call_off(taken, lock, thread))


_hands: weakref.WeakKeyDictionary[asyncio.Task[Any], dict[int | None, _LockThread]] = weakref.WeakKeyDictionary()


def hand_of(lock: Any) -> _LockThread:
    """Return the thread that holds ``lock`` for the current task, or a new one.

    One thread holds all of distsync's locks, so that the task may do with several objects of one lock, such as both
    sides of a SharedLock, what a thread may do. Each other lock has its own thread, because a call of it that waits
    cannot be interrupted.
    """
    task = asyncio.current_task()
    assert task is not None
    hands = _hands.setdefault(task, {})
    return hands.setdefault(None if _is_ours(lock) else id(lock), _LockThread())


def _is_ours(lock: Any) -> bool:
    """Return whether a call that waits for ``lock`` can be interrupted."""
    if isinstance(lock, Condition) and lock._explicit_lock is not None:
        return _is_ours(lock._explicit_lock)
    return isinstance(lock, SharedObject)


def _forget(hand: _LockThread) -> None:
    task = asyncio.current_task()
    hands = {} if task is None else _hands.get(task, {})
    for key in [key for key, each in hands.items() if each is hand]:
        del hands[key]
