"""``synchronized``: a function, method or coroutine that runs under a lock.

Rules for this file: any lock with ``with`` will do, distsync's or the standard library's; an event loop is never
blocked: what waits for a coroutine is a thread of its own.
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

Function = TypeVar("Function", bound=Callable[..., Any])

AGAIN_S = 0.05
"""Until a call that is to end is told so again: it may not have begun yet."""


class _Bound(wrapt.BoundFunctionWrapper):  # type: ignore[type-arg]  # generic in its stubs only
    """A method of an object, or of a class. It pickles as any method does."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        wrapped = self.__wrapped__
        owner = getattr(wrapped, "__self__", None)
        if owner is None:  # a staticmethod
            return _named, (wrapped.__module__, wrapped.__qualname__)
        return getattr, (owner, wrapped.__name__)


def _named(module: str, name: str) -> Any:
    return attrgetter(name)(import_module(module))


class _Synchronized(wrapt.FunctionWrapper):  # type: ignore[type-arg]
    """A function under a lock, which looks like the function. It pickles as any function does, by its name."""

    __bound_function_wrapper__ = _Bound

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__wrapped__.__qualname__


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
            raise TypeError(f"synchronized(lock) needs a lock, not {type(lock).__name__}")
        self._lock = lock

    def __call__(self, function: Function) -> Function:
        """``function`` under the lock. Raises: TypeError for a generator function, and for what is no function."""
        inside = function.__func__ if isinstance(function, staticmethod | classmethod) else function
        if not callable(inside) or isinstance(inside, type):
            raise TypeError(f"a function can be synchronized, not {inside!r}")
        if inspect.isgeneratorfunction(inside) or inspect.isasyncgenfunction(inside):
            raise TypeError(f"{inside.__qualname__} is a generator: take the lock inside of it")
        wrapper = self._wait if inspect.iscoroutinefunction(inside) else self._call
        return _Synchronized(function, wrapper)  # type: ignore[return-value]

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
        return await _hand_of(self._lock).take()

    async def __aexit__(self, *error: Any) -> Any:
        """The lock is let go."""
        return await _hand_of(self._lock).give(error)


class _Hand(threading.Thread):
    """Holds a lock for a task. Whatever is done to the lock is done by this one thread: it owns an RLock."""

    def __init__(self, lock: Any) -> None:
        super().__init__(name="distsync-synchronized", daemon=True)
        self._lock = lock
        self._depth = 0
        self._todo: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], Future[Any]] | None]
        self._todo = queue.SimpleQueue()

    def run(self) -> None:
        for work, args, future in iter(self._todo.get, None):
            try:
                future.set_result(work(*args))
            except BaseException as error:
                future.set_exception(error)
            del work, args, future  # so that nothing is kept alive while it waits for more

    async def take(self) -> Any:
        if not self._depth:
            self.start()
        self._depth += 1
        taken = self._do(self._lock.__enter__)
        try:
            return await asyncio.shield(asyncio.wrap_future(taken))
        except BaseException:
            self._depth -= 1
            if not taken.done():
                _call_off(taken, self._lock, self.ident or 0)
            self._do(self._undo, taken)
            self._end()
            raise

    async def give(self, error: tuple[Any, ...]) -> Any:
        self._depth -= 1
        given = self._do(self._lock.__exit__, *error)
        self._end()
        return await asyncio.shield(asyncio.wrap_future(given))

    def _do(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._todo.put((work, args, future))
        return future

    def _undo(self, taken: Future[Any]) -> None:
        """In the thread: nobody wants any more what was taken, if it was."""
        if taken.exception() is None:
            self._lock.__exit__(None, None, None)

    def _end(self) -> None:
        if not self._depth:
            self._todo.put(None)
            _forget(self._lock, self)


def _call_off(taken: Future[Any], lock: Any, thread: int) -> None:
    """A call that waits in ``thread`` ends soon, if the lock is one of distsync's; others cannot be interrupted."""
    interrupt = getattr(getattr(lock, "client", None), "interrupt", None)
    if interrupt is not None and not taken.done():
        interrupt(thread, asyncio.CancelledError())
        loop = asyncio.get_running_loop()
        loop.call_later(AGAIN_S, lambda: _call_off(taken, lock, thread))


_hands: weakref.WeakKeyDictionary[asyncio.Task[Any], dict[int, _Hand]] = weakref.WeakKeyDictionary()


def _hand_of(lock: Any) -> _Hand:
    """The thread that holds ``lock`` for the running task, or a new one."""
    task = asyncio.current_task()
    assert task is not None
    hands = _hands.setdefault(task, {})
    return hands.setdefault(id(lock), _Hand(lock))


def _forget(lock: Any, hand: _Hand) -> None:
    task = asyncio.current_task()
    if task is not None and _hands.get(task, {}).get(id(lock)) is hand:
        del _hands[task][id(lock)]
