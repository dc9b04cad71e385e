"""Contexts: a start method of ``multiprocessing``, and the objects that its processes share.

Each method passes on the parameters of multiprocessing's, and those of distsync by keyword. It
imports the class that it creates when it is first called.
"""

from __future__ import annotations

import multiprocessing as _stdlib
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Not `from distsync.multiprocessing import process`, which waits for the package. Another thread may
# be importing the package, and waiting for this module.
import distsync.multiprocessing.process as process
from distsync._import_gate import importing
from distsync._pickle import stable_pickle_name

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync.multiprocessing import _recipes, synchronize


class DistsyncContext:
    """The names of ``multiprocessing`` for one start method, like a context of multiprocessing.

    Names that distsync does not replace are the standard library's own.

    All objects take ``name=`` and ``client=``. An object without a name is named after its variable
    if it is assigned at module or class level. Any other object gets a unique name, and reaches
    other processes by inheritance or by pickle. A pool without a name belongs to its creator alone.

    Args:
        base: The context of multiprocessing to wrap.

    Note:
        Source: ``multiprocessing.get_context``.

    Example:
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
        """Return the context of a start method.

        Args:
            method: ``"fork"``, ``"spawn"`` or ``"forkserver"``. None returns this context; on the
                default context, the context of the default start method.

        Returns:
            The context, the same object for each call.

        Raises:
            ValueError: The start method is not known.

        Note:
            Source: ``multiprocessing.get_context``.
        """
        return context_of(self._base.get_context(method))

    # ---- locks and other synchronization

    def Lock(self, *, name: str | None = None, client: Client | None = None) -> synchronize.Lock:
        """Create a lock that any process may release. See ``synchronize.Lock``.

        Args:
            name: Name of the lock, shared by all processes that use it. Without a name, a lock
                assigned at module or class level is named after its variable; any other lock gets a
                unique name.
            client: The client to use; None uses the default client.

        Returns:
            The lock.
        """
        with importing():
            from distsync.multiprocessing import synchronize

        return synchronize.Lock(name=name, client=client)

    def RLock(self, *, name: str | None = None, client: Client | None = None) -> synchronize.RLock:
        """Create a lock that its holder may acquire again. See ``synchronize.RLock``.

        Args:
            name: Name of the lock, shared by all processes that use it. Without a name, a lock
                assigned at module or class level is named after its variable; any other lock gets a
                unique name.
            client: The client to use; None uses the default client.

        Returns:
            The lock.
        """
        with importing():
            from distsync.multiprocessing import synchronize

        return synchronize.RLock(name=name, client=client)

    def SharedLock(self, *, name: str | None = None, client: Client | None = None) -> _recipes.SharedLock:
        """Create an RLock that many readers may share. See ``synchronize.SharedLock``.

        The standard library has no such method.

        Args:
            name: Name of the lock, shared by all processes that use it. Without a name, a lock
                assigned at module or class level is named after its variable; any other lock gets a
                unique name.
            client: The client to use; None uses the default client.

        Returns:
            The lock.
        """
        with importing():
            from distsync.multiprocessing import _recipes

        return _recipes.SharedLock(name=name, client=client)

    def Election(self, data: Any = None, *, name: str | None = None, client: Client | None = None) -> _recipes.Election:
        """Create a leader election, a Condition whose lock is leadership. See ``synchronize.Election``.

        The standard library has no such method.

        Args:
            data: Any JSON value that other processes can read of this candidate, such as an address.
            name: Name of the election, shared by all processes that use it. Without a name, an
                election assigned at module or class level is named after its variable; any other
                election gets a unique name.
            client: The client to use; None uses the default client.

        Returns:
            The election.

        Raises:
            PayloadPickleError: ``data`` is not JSON.
            PayloadTooLargeError: ``data`` is too large.
        """
        with importing():
            from distsync.multiprocessing import _recipes

        return _recipes.Election(data, name=name, client=client)

    def Semaphore(
        self, value: int = 1, *, name: str | None = None, client: Client | None = None, on_mismatch: str = "error"
    ) -> synchronize.Semaphore:
        """Create a counting semaphore. See ``synchronize.Semaphore``.

        Args:
            value: Initial number of permits, the same for all objects of this name; 0 makes a
                signal.
            name: Name of the semaphore, shared by all processes that use it. Without a name, a
                semaphore assigned at module or class level is named after its variable; any other
                semaphore gets a unique name.
            client: The client to use; None uses the default client.
            on_mismatch: What the first use does while other processes use another number:
                ``"error"`` raises MismatchError, ``"wait"`` waits until they have ended, and
                ``"adopt"`` uses their number.

        Returns:
            The semaphore.

        Raises:
            ValueError: ``value`` is negative.
            ConfigurationError: ``on_mismatch`` is not valid.
        """
        with importing():
            from distsync.multiprocessing import synchronize

        return synchronize.Semaphore(value, name=name, client=client, on_mismatch=on_mismatch)

    def BoundedSemaphore(
        self, value: int = 1, *, name: str | None = None, client: Client | None = None, on_mismatch: str = "error"
    ) -> synchronize.BoundedSemaphore:
        """Create a semaphore with a maximum number of permits. See ``synchronize.BoundedSemaphore``.

        Args:
            value: Initial and maximum number of free permits, the same for all objects of this
                name.
            name: Name of the semaphore, shared by all processes that use it. Without a name, a
                semaphore assigned at module or class level is named after its variable; any other
                semaphore gets a unique name.
            client: The client to use; None uses the default client.
            on_mismatch: What the first use does while other processes use another number:
                ``"error"`` raises MismatchError, ``"wait"`` waits until they have ended, and
                ``"adopt"`` uses their number.

        Returns:
            The semaphore.

        Raises:
            ValueError: ``value`` is negative.
            ConfigurationError: ``on_mismatch`` is not valid.
        """
        with importing():
            from distsync.multiprocessing import synchronize

        return synchronize.BoundedSemaphore(value, name=name, client=client, on_mismatch=on_mismatch)

    def Condition(
        self, lock: Any = None, *, name: str | None = None, client: Client | None = None
    ) -> synchronize.Condition:
        """Create a condition variable. See ``synchronize.Condition``.

        Args:
            lock: A Lock, RLock or SharedLock of this module, which all processes of this condition
                share. None uses an RLock that belongs to the condition.
            name: Name of the condition, shared by all processes that use it. Without a name, a
                condition assigned at module or class level is named after its variable; any other
                condition gets a unique name.
            client: The client to use; None uses the default client.

        Returns:
            The condition.
        """
        with importing():
            from distsync.multiprocessing import synchronize

        return synchronize.Condition(lock, name=name, client=client)

    def Event(self, *, name: str | None = None, client: Client | None = None) -> synchronize.Event:
        """Create a flag that processes can wait for. See ``synchronize.Event``.

        Args:
            name: Name of the event, shared by all processes that use it. Without a name, an event
                assigned at module or class level is named after its variable; any other event gets
                a unique name.
            client: The client to use; None uses the default client.

        Returns:
            The event.
        """
        with importing():
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
        on_mismatch: str = "error",
    ) -> synchronize.Barrier:
        """Create a barrier for threads of any processes. See ``synchronize.Barrier``.

        Args:
            parties: Number of threads to wait for, 1 or more. It must be the same in all processes
                that use the name at the same time.
            action: Called without arguments by one of the threads, before they are released; None
                calls nothing. It must pickle if the barrier is sent to another process.
            timeout: Default timeout of ``wait()`` in seconds; None waits forever.
            name: Name of the barrier, shared by all processes that use it. Without a name, a
                barrier assigned at module or class level is named after its variable; any other
                barrier gets a unique name.
            client: The client to use; None uses the default client.
            on_mismatch: What the first use does while other processes use another number:
                ``"error"`` raises MismatchError, ``"wait"`` waits until they have ended, and
                ``"adopt"`` uses their number.

        Returns:
            The barrier.

        Raises:
            ValueError: ``parties`` is less than 1.
            ConfigurationError: ``on_mismatch`` is not valid.
        """
        with importing():
            from distsync.multiprocessing import synchronize

        return synchronize.Barrier(parties, action, timeout, name=name, client=client, on_mismatch=on_mismatch)

    # ---- queues

    def Queue(self, maxsize: int = 0, *, name: str | None = None, client: Client | None = None) -> Any:
        """Create a queue whose items are sent by a feeder thread. See ``queues.Queue``.

        Args:
            maxsize: Maximum number of items; 0 or less means unbounded.
            name: Name of the queue, shared by all processes that use it. Without a name, a queue
                assigned at module or class level is named after its variable; any other queue gets
                a unique name.
            client: The client to use; None uses the default client.

        Returns:
            The queue.
        """
        return _home("queues").Queue(maxsize, ctx=self.get_context(), name=name, client=client)

    def JoinableQueue(self, maxsize: int = 0, *, name: str | None = None, client: Client | None = None) -> Any:
        """Create a queue with ``task_done()`` and ``join()``, which does not redeliver items.

        See ``distsync.multiprocessing.queues.JoinableQueue``, and ``distsync.JoinableQueue`` for a
        queue that redelivers the items of a killed consumer.

        Args:
            maxsize: Maximum number of items; 0 or less means unbounded.
            name: Name of the queue, shared by all processes that use it. Without a name, a queue
                assigned at module or class level is named after its variable; any other queue gets
                a unique name.
            client: The client to use; None uses the default client.

        Returns:
            The queue.
        """
        return _home("queues").JoinableQueue(maxsize, ctx=self.get_context(), name=name, client=client)

    def SimpleQueue(self, *, name: str | None = None, client: Client | None = None) -> Any:
        """Create a queue without a feeder thread. See ``queues.SimpleQueue``.

        Args:
            name: Name of the queue, shared by all processes that use it. Without a name, a queue
                assigned at module or class level is named after its variable; any other queue gets
                a unique name.
            client: The client to use; None uses the default client.

        Returns:
            The queue.
        """
        return _home("queues").SimpleQueue(ctx=self.get_context(), name=name, client=client)

    # ---- values

    def RawValue(
        self,
        typecode_or_type: Any,
        *args: Any,
        name: str | None = None,
        client: Client | None = None,
        on_mismatch: str = "error",
    ) -> Any:
        """Create a shared ctypes object without a lock. See ``sharedctypes.RawValue``.

        Args:
            typecode_or_type: Type code of the ``array`` module, or a ctypes type.
            *args: Arguments of the type's constructor: the initial value.
            name: Name of the value, shared by all processes that use it. Without a name, a value
                assigned at module or class level is named after its variable; any other value gets
                a unique name.
            client: The client to use; None uses the default client.
            on_mismatch: What the first access does while other processes use another size: ``"error"``
                raises MismatchError, and ``"wait"`` waits until they have ended. If none does, the object
                begins again with our size and initial value in each case.

        Returns:
            The value.

        Raises:
            TypeError: The type is not a ctypes type, or contains an address.
            PayloadTooLargeError: The object is larger than 990,000 bytes.
            ConfigurationError: ``on_mismatch`` is neither ``"error"`` nor ``"wait"``.
        """
        return _home("sharedctypes").RawValue(
            typecode_or_type, *args, name=name, client=client, on_mismatch=on_mismatch
        )

    def RawArray(
        self,
        typecode_or_type: Any,
        size_or_initializer: Any,
        *,
        name: str | None = None,
        client: Client | None = None,
        on_mismatch: str = "error",
    ) -> Any:
        """Create a shared ctypes array without a lock. See ``sharedctypes.RawArray``.

        Args:
            typecode_or_type: Type code of the ``array`` module, or a ctypes type.
            size_or_initializer: Number of elements, which are 0 initially, or the initial elements.
            name: Name of the array, shared by all processes that use it. Without a name, an array
                assigned at module or class level is named after its variable; any other array gets
                a unique name.
            client: The client to use; None uses the default client.
            on_mismatch: What the first access does while other processes use another size: ``"error"``
                raises MismatchError, and ``"wait"`` waits until they have ended. If none does, the object
                begins again with our size and initial value in each case.

        Returns:
            The array.

        Raises:
            TypeError: The type is not a ctypes type, or contains an address.
            ValueError: The number of elements is negative.
            PayloadTooLargeError: The array is larger than 990,000 bytes.
            ConfigurationError: ``on_mismatch`` is neither ``"error"`` nor ``"wait"``.
        """
        return _home("sharedctypes").RawArray(
            typecode_or_type, size_or_initializer, name=name, client=client, on_mismatch=on_mismatch
        )

    def Value(
        self,
        typecode_or_type: Any,
        *args: Any,
        lock: Any = True,
        name: str | None = None,
        client: Client | None = None,
        on_mismatch: str = "error",
    ) -> Any:
        """Create a shared ctypes object with a lock. See ``sharedctypes.Value``.

        Args:
            typecode_or_type: Type code of the ``array`` module, or a ctypes type.
            *args: Arguments of the type's constructor: the initial value.
            lock: True or None creates an RLock. A lock is used as it is. False creates a RawValue.
            name: Name of the value, shared by all processes that use it. Without a name, a value
                assigned at module or class level is named after its variable; any other value gets
                a unique name.
            client: The client to use; None uses the default client.
            on_mismatch: What the first access does while other processes use another size: ``"error"``
                raises MismatchError, and ``"wait"`` waits until they have ended. If none does, the object
                begins again with our size and initial value in each case.

        Returns:
            The value.

        Raises:
            TypeError: The type is not a ctypes type, or contains an address.
            AttributeError: ``lock`` is not a lock.
            PayloadTooLargeError: The object is larger than 990,000 bytes.
            ConfigurationError: ``on_mismatch`` is neither ``"error"`` nor ``"wait"``.
        """
        return _home("sharedctypes").Value(
            typecode_or_type,
            *args,
            lock=lock,
            ctx=self.get_context(),
            name=name,
            client=client,
            on_mismatch=on_mismatch,
        )

    def Array(
        self,
        typecode_or_type: Any,
        size_or_initializer: Any,
        *,
        lock: Any = True,
        name: str | None = None,
        client: Client | None = None,
        on_mismatch: str = "error",
    ) -> Any:
        """Create a shared ctypes array with a lock. See ``sharedctypes.Array``.

        Args:
            typecode_or_type: Type code of the ``array`` module, or a ctypes type.
            size_or_initializer: Number of elements, which are 0 initially, or the initial elements.
            lock: True or None creates an RLock. A lock is used as it is. False creates a RawArray.
            name: Name of the array, shared by all processes that use it. Without a name, an array
                assigned at module or class level is named after its variable; any other array gets
                a unique name.
            client: The client to use; None uses the default client.
            on_mismatch: What the first access does while other processes use another size: ``"error"``
                raises MismatchError, and ``"wait"`` waits until they have ended. If none does, the object
                begins again with our size and initial value in each case.

        Returns:
            The array.

        Raises:
            TypeError: The type is not a ctypes type, or contains an address.
            ValueError: The number of elements is negative.
            AttributeError: ``lock`` is not a lock.
            PayloadTooLargeError: The array is larger than 990,000 bytes.
            ConfigurationError: ``on_mismatch`` is neither ``"error"`` nor ``"wait"``.
        """
        ctx = self.get_context()
        return _home("sharedctypes").Array(
            typecode_or_type, size_or_initializer, lock=lock, ctx=ctx, name=name, client=client, on_mismatch=on_mismatch
        )

    # ---- managers and pools

    def Manager(self, *, name: str | None = None, client: Client | None = None) -> Any:
        """Create a manager of shared objects, and start it. See ``managers.Manager``.

        Args:
            name: Name of the manager, shared by all processes that use it; None makes a manager of
                which no other process knows until it is sent there.
            client: The client to use; None uses the default client.

        Returns:
            The manager.
        """
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
        """Create a pool of worker processes. See ``distsync.multiprocessing.pool.Pool``.

        Args:
            processes: Number of local workers. None starts one for each CPU. 0 starts none, so that
                workers elsewhere run the tasks; it requires a name.
            initializer: Called in each local worker before its first task; None calls nothing. All
                pools of one name must have the same initializer.
            initargs: Arguments of ``initializer``.
            maxtasksperchild: Number of tasks (chunks) after which a local worker is replaced; None
                never replaces it.
            name: Name of the pool, shared by all processes that use it. Without a name, no other
                process finds the pool, and its workers run no other caller's tasks.
            client: The client to use; None uses the default client.
            **options: Further options of ``distsync.multiprocessing.pool.Pool``: ``max_deliveries``, ``max_payload``,
                ``progress``.

        Returns:
            The pool.

        Raises:
            ValueError: A number is out of range, or ``processes`` is 0 without a name.
            TypeError: ``initializer`` is not callable.
            MismatchError: A pool of this name is in use with another initializer.
            UnreachableError: No server could be reached for the client's first connection.
            ConfigurationError: The codec of the client is JSON.
        """
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
    """Import and return a module of this package."""
    with importing():
        return import_module(f"distsync.multiprocessing.{name}")


@cache
def context_of(base: Any) -> DistsyncContext:
    """Return the context that wraps a context of multiprocessing.

    Args:
        base: The context of multiprocessing.

    Returns:
        The context, the same object for each call.
    """
    return DistsyncContext(base)


default_context: DistsyncContext = context_of(_stdlib.context._default_context)


@stable_pickle_name
def current_context() -> DistsyncContext:
    """Return the context of the default start method.

    Returns:
        The context.
    """
    return default_context


@stable_pickle_name
def named_context(method: str) -> DistsyncContext:
    """Return the context of a start method.

    Args:
        method: ``"fork"``, ``"spawn"`` or ``"forkserver"``.

    Returns:
        The context.
    """
    return default_context.get_context(method)


def __getattr__(name: str) -> Any:
    """Return a name of ``multiprocessing.context`` that distsync does not replace."""
    try:
        return getattr(_stdlib.context, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
