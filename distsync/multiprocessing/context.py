"""Contexts: a start method of ``multiprocessing``, and the objects that its processes share.

Rules for this file: each method takes multiprocessing's parameters, and those of distsync by keyword, and passes them
on; what makes the objects is imported when it is first asked for.
"""

from __future__ import annotations

import multiprocessing as _stdlib
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

# not `from distsync.multiprocessing import process`, which waits for the package: another thread may be importing that,
# and be waiting for this module
import distsync.multiprocessing.process as process
from distsync._pickle import at_home

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync.multiprocessing import synchronize


class DistsyncContext:
    """The names of ``multiprocessing`` with one start method; what is not replaced is the standard library's own.

    Every object takes ``name=`` and ``client=``. Without a name it is named after the place where it is bound, if that
    is a module or class, and else travels to other processes by inheritance and pickle.
    Source: ``multiprocessing.get_context``.

    >>> context = get_context("spawn")
    >>> context.get_start_method()
    'spawn'
    """

    __module__ = "distsync.multiprocessing.context"

    def __init__(self, base: Any) -> None:
        self._base = base
        self.Process: type[Any] = process.class_for(base)

    def __getattr__(self, name: str) -> Any:
        if name == "_base":  # a copy that is still being made
            raise AttributeError(name)
        return getattr(self._base, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._base)})

    def __repr__(self) -> str:
        return f"<distsync.multiprocessing context {self._base.get_start_method(True) or 'default'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self is default_context:
            return current_context, ()
        return named_context, (self._base.get_start_method(),)

    def get_context(self, method: str | None = None) -> DistsyncContext:
        """The context of a start method: fork, spawn or forkserver; None: this one, or the one that is the default.

        Raises: ValueError for another one.
        Source: ``multiprocessing.get_context``.
        """
        return context_of(self._base.get_context(method))

    # ---- locks and their like

    def Lock(self, *, name: str | None = None, client: Client | None = None) -> synchronize.Lock:
        """A lock that one process holds at a time, and that any may release. See ``synchronize.Lock``."""
        from distsync.multiprocessing import synchronize

        return synchronize.Lock(name=name, client=client)

    def RLock(self, *, name: str | None = None, client: Client | None = None) -> synchronize.RLock:
        """A lock that the thread which holds it may acquire again. See ``synchronize.RLock``."""
        from distsync.multiprocessing import synchronize

        return synchronize.RLock(name=name, client=client)

    def Semaphore(
        self, value: int = 1, *, name: str | None = None, client: Client | None = None
    ) -> synchronize.Semaphore:
        """A number of permits. See ``synchronize.Semaphore``."""
        from distsync.multiprocessing import synchronize

        return synchronize.Semaphore(value, name=name, client=client)

    def BoundedSemaphore(
        self, value: int = 1, *, name: str | None = None, client: Client | None = None
    ) -> synchronize.BoundedSemaphore:
        """A semaphore that is never released more often than acquired. See ``synchronize.BoundedSemaphore``."""
        from distsync.multiprocessing import synchronize

        return synchronize.BoundedSemaphore(value, name=name, client=client)

    def Condition(
        self, lock: Any = None, *, name: str | None = None, client: Client | None = None
    ) -> synchronize.Condition:
        """Processes wait under a lock until one says that something has changed. See ``synchronize.Condition``."""
        from distsync.multiprocessing import synchronize

        return synchronize.Condition(lock, name=name, client=client)

    def Event(self, *, name: str | None = None, client: Client | None = None) -> synchronize.Event:
        """A flag that one sets and many wait for. See ``synchronize.Event``."""
        from distsync.multiprocessing import synchronize

        return synchronize.Event(name=name, client=client)

    def Barrier(
        self,
        parties: int,
        action: Callable[[], Any] | None = None,
        timeout: float | None = None,
        *,
        name: str | None = None,
        client: Client | None = None,
    ) -> synchronize.Barrier:
        """A place where so many wait for each other. See ``synchronize.Barrier``."""
        from distsync.multiprocessing import synchronize

        return synchronize.Barrier(parties, action, timeout, name=name, client=client)

    # ---- queues

    def Queue(self, maxsize: int = 0, *, name: str | None = None, client: Client | None = None) -> Any:
        """A queue whose puts a feeder thread sends. See ``queues.Queue``."""
        return _home("queues").Queue(maxsize, ctx=self.get_context(), name=name, client=client)

    def JoinableQueue(self, maxsize: int = 0, *, name: str | None = None, client: Client | None = None) -> Any:
        """A queue with ``task_done`` and ``join``. See ``queues.JoinableQueue``."""
        return _home("queues").JoinableQueue(maxsize, ctx=self.get_context(), name=name, client=client)

    def SimpleQueue(self, *, name: str | None = None, client: Client | None = None) -> Any:
        """A queue without a feeder. See ``queues.SimpleQueue``."""
        return _home("queues").SimpleQueue(ctx=self.get_context(), name=name, client=client)

    # ---- values

    def RawValue(self, typecode_or_type: Any, *args: Any, name: str | None = None, client: Client | None = None) -> Any:
        """A shared value without a lock. See ``sharedctypes.RawValue``."""
        return _home("sharedctypes").RawValue(typecode_or_type, *args, name=name, client=client)

    def RawArray(
        self, typecode_or_type: Any, size_or_initializer: Any, *, name: str | None = None, client: Client | None = None
    ) -> Any:
        """A shared array without a lock. See ``sharedctypes.RawArray``."""
        return _home("sharedctypes").RawArray(typecode_or_type, size_or_initializer, name=name, client=client)

    def Value(
        self,
        typecode_or_type: Any,
        *args: Any,
        lock: Any = True,
        name: str | None = None,
        client: Client | None = None,
    ) -> Any:
        """A shared value. See ``sharedctypes.Value``."""
        return _home("sharedctypes").Value(
            typecode_or_type, *args, lock=lock, ctx=self.get_context(), name=name, client=client
        )

    def Array(
        self,
        typecode_or_type: Any,
        size_or_initializer: Any,
        *,
        lock: Any = True,
        name: str | None = None,
        client: Client | None = None,
    ) -> Any:
        """A shared array. See ``sharedctypes.Array``."""
        ctx = self.get_context()
        return _home("sharedctypes").Array(
            typecode_or_type, size_or_initializer, lock=lock, ctx=ctx, name=name, client=client
        )

    # ---- servers of objects, and workers

    def Manager(self, *, name: str | None = None, client: Client | None = None) -> Any:
        """Objects of all kinds, shared by name. See ``managers.Manager``."""
        return _home("managers").Manager(ctx=self.get_context(), name=name, client=client)

    def Pool(
        self,
        processes: int | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        *,
        name: str | None = None,
        client: Client | None = None,
        **options: Any,
    ) -> Any:
        """Worker processes that share tasks. See ``pool.Pool``."""
        return _home("pool").Pool(
            processes,
            initializer,
            initargs,
            maxtasksperchild,
            context=self.get_context(),
            name=name,
            client=client,
            **options,
        )


def _home(name: str) -> Any:
    """The module of this package that has what is asked for."""
    return import_module(f"distsync.multiprocessing.{name}")


@cache
def context_of(base: Any) -> DistsyncContext:
    """Our context around one of multiprocessing's, always the same."""
    return DistsyncContext(base)


default_context: DistsyncContext = context_of(_stdlib.context._default_context)


@at_home
def current_context() -> DistsyncContext:
    """Return the context of the default start method."""
    return default_context


@at_home
def named_context(method: str) -> DistsyncContext:
    """Return the context of a start method."""
    return default_context.get_context(method)


def __getattr__(name: str) -> Any:
    """Whatever else ``multiprocessing.context`` has."""
    try:
        return getattr(_stdlib.context, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
