"""Manager: shared objects, like those of ``multiprocessing.Manager``, without a server process.

The znodes of a manager's objects are below the manager's own path. A manager without a name is
known only to processes to which it, or one of its objects, was sent. All its objects are deleted
when it shuts down or when its client closes. A manager with a name is the same for all processes
that use the name, and so are its objects with a name. They stay until ``clear()`` is called.
"""

from __future__ import annotations

import array
import builtins
import os
import uuid
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from multiprocessing import ProcessError
from multiprocessing import managers as _stdlib
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from distsync import queue, threading
from distsync._client import default_client, lifecycle
from distsync._client.naming import inference, paths
from distsync._client.outage_limit import OutageLimit
from distsync._client.process_identity import identity_of
from distsync._import_gate import importing
from distsync._log import OwnLogger
from distsync._objects import base
from distsync._objects.base import SharedObject
from distsync._pickle import stable_pickle_name
from distsync._protocols.retries import remove_tree, remove_tree_by_deadline
from distsync.errors import DeadlineError
from distsync.multiprocessing import _managed_locks
from distsync.multiprocessing._manager_proxies import (
    ArrayProxy,
    DictProxy,
    ListProxy,
    NamespaceProxy,
    Shared,
    ValueProxy,
)
from distsync.multiprocessing._stdlib_names import stdlib_getattr

if TYPE_CHECKING:
    from distsync._client.client import Client

logger = OwnLogger("distsync.multiprocessing")

_OURS = ["ArrayProxy", "DictProxy", "ListProxy", "Manager", "NamespaceProxy", "SyncManager", "ValueProxy"]
__all__ = [*_OURS, *sorted({*_stdlib.__all__} - {*_OURS})]  # noqa: PLE0604  # others: see __getattr__

#: The methods of SyncManager hide these names.
_Array, _dict, _list = array.array, dict, list

NO_SERVER = "a manager of distsync is no process: {0}"


class SyncManager(SharedObject):
    """A manager of shared objects, like ``multiprocessing.managers.SyncManager``.

    It creates the objects, and deletes them when it shuts down. A manager with a name is the same
    for all processes that use the name, and keeps its objects until `clear` is called.

    The contents of one dict, list, Namespace, Value or Array may be 1,000,000 bytes long.

    Args:
        address: Not supported; it must be None.
        authkey: Not supported; it must be None.
        serializer: Ignored, because there is no server process.
        ctx: Ignored, because there is no server process.
        shutdown_timeout: Ignored, because there is no server process.
        name: Name of the manager, shared by all processes that use it. None makes a manager of
            which no other process knows until it is sent there.
        client: The client to use; None uses the default client.
        path: Path of the manager's znode, instead of a name.

    Raises:
        TypeError: Both a name and a path are given, or an address or authkey is given.

    Note:
        Creating an object with data costs 1 request, and 1 more for each new part of its path.
        Creating any other object costs none before its first use.

        If an object is created while the manager is not started, or after it has shut down,
        ProcessError is raised.

        Znodes: ``<namespace>/manager/<name>/<kind>/<name>``, one tree for each object. Without a
        name: below ``<namespace>/process/<process>/objects``.

        Source: ``multiprocessing.managers.SyncManager``.

    Example:
        >>> with Manager() as manager:
        ...     ages = manager.dict(ann=31)
        ...     ages["bob"] = 27
        ...     print(ages)
        {'ann': 31, 'bob': 27}
    """

    _kind = "manager"
    _has_versions = True

    def __init__(
        self,
        address: Any = None,
        authkey: Any = None,
        serializer: str = "pickle",
        ctx: Any = None,
        *,
        shutdown_timeout: float = 1.0,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
    ) -> None:
        if address is not None or authkey is not None:
            raise TypeError(NO_SERVER.format("give hosts, authkey and name to distsync.connect() and name=, instead"))
        self._shared = name is not None or path is not None
        self._state = "initial"
        #: The pools that this process has created, until they end.
        self._pools: weakref.WeakSet[Any] = weakref.WeakSet()
        fresh = None if self._shared else inference.fresh_name()  # also where it is bound to a name of a module
        super().__init__(fresh or name, client, path)
        if fresh is not None:
            self._home = identity_of(self._creator_pid)

    @property
    def _is_anonymous(self) -> bool:
        return not self._shared

    @property
    def address(self) -> str | None:
        """Hosts of the client; None for the user's embedded server."""
        hosts: str | None = self.client.hosts
        return hosts

    def start(self, initializer: Callable[..., Any] | None = None, initargs: Iterable[Any] = ()) -> None:
        """Start the manager, so that it can create objects.

        The objects of a manager without a name are deleted when its client closes, at the latest.

        Args:
            initializer: Not supported; it must be None.
            initargs: Ignored.

        Raises:
            ProcessError: The manager was started before.
            TypeError: ``initializer`` is not None.

        Note:
            Costs no request.
        """
        if self._state != "initial":
            raise ProcessError("Already started server" if self._state == "started" else "Manager has shut down")
        if initializer is not None:
            raise TypeError(NO_SERVER.format("there is nothing for an initializer to run in"))
        self._state = "started"
        if not self._shared:
            self.client.at_close(self.path, partial(remove_tree, self.path))

    def connect(self) -> None:
        """Start the manager, but delete nothing when the client closes.

        Note:
            Costs no request.
        """
        self._state = "started"

    def shutdown(self) -> None:
        """Shut the manager down. Without a name, it deletes all its objects.

        Afterwards, the manager creates no objects. Its pools that this process has created are
        terminated.

        In a forked child, it deletes nothing, because its parent uses the objects.

        Note:
            Costs at most 1 request more than `destroy`, and none if the manager has a name. Costs
            as many more as the end of its pools.

            If no server answers for the session timeout, or for the client's default timeout, the
            logger ``distsync.multiprocessing`` warns that the objects were not deleted.
        """
        for pool in tuple(self._pools) if self._creator_pid == os.getpid() else ():
            pool.terminate()
            pool.join()
        if self._state == "started" and not self._shared and self._creator_pid == os.getpid():
            self._delete_objects()
        self._state = "shutdown"

    def _delete_objects(self) -> None:
        """Delete all objects, unless no server answers for the session timeout, or the timeout of calls."""
        limit, call_timeout = OutageLimit(self.client), self.client.settings.timeout
        seconds = limit.seconds if call_timeout is None else call_timeout
        while not limit.has_passed():
            with suppress(DeadlineError):
                self._ask(remove_tree_by_deadline(self.path), seconds)
                return
            if call_timeout is not None:
                break
        text = "the objects of the manager %s were not deleted: no server has answered for %.3g s"
        logger.warning(text, self.path, seconds)

    def clear(self) -> None:
        """Delete all objects of the manager, with and without a name.

        Note:
            Costs as many requests as `destroy`, which does the same.
        """
        self.destroy()

    def join(self, timeout: float | None = None) -> None:
        """Return at once, because there is no server process to wait for.

        Args:
            timeout: Ignored.

        Note:
            Costs no request.
        """

    def __enter__(self) -> SyncManager:
        if self._state == "initial":
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def __reduce__(self) -> tuple[Any, ...]:
        return manager, (type(self), self._explicit_path or self.path, self.client.origin)

    @classmethod
    def register(cls, typeid: str, *args: Any, **keywords: Any) -> NoReturn:
        """Raise NotImplementedError, because no server process could keep the objects.

        Args:
            typeid: Name of the type, which is mentioned in the error.
            *args: Ignored.
            **keywords: Ignored.

        Raises:
            NotImplementedError: Always.
        """
        instead = f"no process would host the object of {typeid!r}; keep its data in a dict or Namespace, under a Lock"
        raise NotImplementedError(NO_SERVER.format(instead))

    def get_server(self) -> NoReturn:
        """Raise NotImplementedError, because there is no server process.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(NO_SERVER.format("there is no server to run"))

    # ---- creating objects

    def _place(self, kind: str, name: str | None) -> builtins.dict[str, Any]:
        """Return the keyword arguments for the client and path of a new object."""
        if self._state != "started":
            raise ProcessError(f"Manager is not started (state {self._state})")
        part = str(uuid.uuid4()) if name is None else paths.encode_name(name)
        return {"client": self._explicit_client, "path": f"{self.path}/{kind}/{part}"}

    def _object(self, make: Callable[..., Any], name: str | None, *args: Any, **keywords: Any) -> Any:
        kind = make.__name__.removeprefix("Managed").lower()
        return make(*args, **keywords, **self._place(kind, name))

    def _data(self, kind: type[Shared], name: str | None, value: Any) -> Any:
        """Create a container, with this value if it is new.

        Args:
            kind: The class of the container.
            name: Name of the container. A container without a name is deleted when no process can
                know it any more.
            value: The initial value.

        Returns:
            The container.
        """
        made = kind(**self._place(kind._typeid, name))
        made._begin_with(value)
        if name is None:
            made._finalizer = weakref.finalize(
                made, base.forget_unnamed, made.client, made.path, lifecycle.fork_count()
            )
            made._finalizer.atexit = False
        return made

    def dict(self, *args: Any, name: str | None = None, **items: Any) -> DictProxy:
        """Create a shared dict, or open the one of this name. See DictProxy.

        An item with the key "name" must be passed in a dict: ``manager.dict({"name": 1})``.

        Args:
            *args: Initial items, as for ``dict``. They count only if the dict is new.
            name: Name of the dict, shared by all processes that use this manager. None gives it a
                unique name.
            **items: Further initial items.

        Returns:
            The dict.

        Raises:
            ProcessError: The manager was not started, or has shut down.

        Note:
            Costs 1 request, and 1 more for each new part of its path.
        """
        made: DictProxy = self._data(DictProxy, name, _dict(*args, **items))
        return made

    def list(self, items: Iterable[Any] = (), /, *, name: str | None = None) -> ListProxy:
        """Create a shared list, or open the one of this name. See ListProxy.

        Args:
            items: Initial items. They count only if the list is new.
            name: Name of the list, shared by all processes that use this manager. None gives it a
                unique name.

        Returns:
            The list.

        Raises:
            ProcessError: The manager was not started, or has shut down.

        Note:
            Costs 1 request, and 1 more for each new part of its path.
        """
        made: ListProxy = self._data(ListProxy, name, _list(items))
        return made

    def Namespace(self, *, name: str | None = None, **attributes: Any) -> NamespaceProxy:
        """Create a shared object with attributes, or open the one of this name. See NamespaceProxy.

        An attribute that is itself called "name" must be set afterwards.

        Args:
            name: Name of the namespace, shared by all processes that use this manager. None gives
                it a unique name.
            **attributes: Initial attributes. They count only if the namespace is new.

        Returns:
            The namespace.

        Raises:
            ProcessError: The manager was not started, or has shut down.

        Note:
            Costs 1 request, and 1 more for each new part of its path.
        """
        return NamespaceProxy(self._data(DictProxy, name, attributes))

    def Value(self, typecode: Any, value: Any, lock: Any = True, *, name: str | None = None) -> ValueProxy:
        """Create a shared value, or open the one of this name. See ValueProxy.

        Args:
            typecode: Ignored, as in multiprocessing.
            value: Initial value, any object that pickles. It counts only if the shared value is
                new.
            lock: Ignored, as in multiprocessing.
            name: Name of the value, shared by all processes that use this manager. None gives it a
                unique name.

        Returns:
            The value.

        Raises:
            ProcessError: The manager was not started, or has shut down.

        Note:
            Costs 1 request, and 1 more for each new part of its path.
        """
        made: ValueProxy = self._data(ValueProxy, name, [value])
        return made

    def Array(self, typecode: str, sequence: Any, lock: Any = True, *, name: str | None = None) -> ArrayProxy:
        """Create a shared ``array.array``, or open the one of this name. See ArrayProxy.

        Args:
            typecode: Type code of the ``array`` module.
            sequence: Initial elements. They count only if the array is new.
            lock: Ignored, as in multiprocessing.
            name: Name of the array, shared by all processes that use this manager. None gives it a
                unique name.

        Returns:
            The array.

        Raises:
            ProcessError: The manager was not started, or has shut down.

        Note:
            Costs 1 request, and 1 more for each new part of its path.
        """
        made: ArrayProxy = self._data(ArrayProxy, name, _Array(typecode, sequence))
        return made

    def Queue(self, maxsize: int = 0, *, name: str | None = None) -> queue.Queue[Any]:
        """Create a queue without a feeder thread, as multiprocessing's manager does.

        Args:
            maxsize: Maximum number of items; 0 or less means unbounded.
            name: Name of the queue, shared by all processes that use this manager. None gives it a
                unique name.

        Returns:
            A ``distsync.queue.Queue``.

        Raises:
            ProcessError: The manager was not started, or has shut down.
        """
        made: queue.Queue[Any] = self._object(queue.Queue, name, maxsize)
        return made

    def JoinableQueue(self, maxsize: int = 0, *, name: str | None = None) -> queue.Queue[Any]:
        """Create a queue, like ``Queue``: all queues of a manager have ``task_done()`` and ``join()``.

        Args:
            maxsize: Maximum number of items; 0 or less means unbounded.
            name: Name of the queue, shared by all processes that use this manager. None gives it a
                unique name.

        Returns:
            A ``distsync.queue.Queue``.

        Raises:
            ProcessError: The manager was not started, or has shut down.
        """
        return self.Queue(maxsize, name=name)

    def Lock(self, *, name: str | None = None) -> threading.Lock:
        """Create a lock that any process may release, whichever process acquired it.

        Args:
            name: Name of the lock, shared by all processes that use this manager. None gives it a
                unique name.

        Returns:
            A ``distsync.threading.Lock`` that is never cached, with the costs of
            ``distsync.multiprocessing.Lock``.

        Raises:
            ProcessError: The manager was not started, or has shut down.
        """
        made: threading.Lock = self._object(_managed_locks.ManagedLock, name)
        return made

    def RLock(self, *, name: str | None = None) -> threading.RLock:
        """Create a reentrant lock.

        Args:
            name: Name of the lock, shared by all processes that use this manager. None gives it a
                unique name.

        Returns:
            A ``distsync.threading.RLock``.

        Raises:
            ProcessError: The manager was not started, or has shut down.
        """
        made: threading.RLock = self._object(_managed_locks.ManagedRLock, name)
        return made

    def Semaphore(self, value: int = 1, *, name: str | None = None) -> threading.Semaphore:
        """Create a counting semaphore whose permits any process may release.

        Args:
            value: Initial number of permits, the same for all objects of this name; 0 makes a
                signal.
            name: Name of the semaphore, shared by all processes that use this manager. None gives
                it a unique name.

        Returns:
            A ``distsync.threading.Semaphore``, with the costs of
            ``distsync.multiprocessing.Semaphore``.

        Raises:
            ProcessError: The manager was not started, or has shut down.
            ValueError: ``value`` is negative.
        """
        made: threading.Semaphore = self._object(_managed_locks.ManagedSemaphore, name, value)
        return made

    def BoundedSemaphore(self, value: int = 1, *, name: str | None = None) -> threading.BoundedSemaphore:
        """Create a semaphore with a maximum number of permits, which any process may release.

        Args:
            value: Initial and maximum number of free permits, the same for all objects of this
                name.
            name: Name of the semaphore, shared by all processes that use this manager. None gives
                it a unique name.

        Returns:
            A ``distsync.threading.BoundedSemaphore``, with the costs of
            ``distsync.multiprocessing.BoundedSemaphore``.

        Raises:
            ProcessError: The manager was not started, or has shut down.
            ValueError: ``value`` is negative.
        """
        made: threading.BoundedSemaphore = self._object(_managed_locks.ManagedBoundedSemaphore, name, value)
        return made

    def Condition(self, lock: Any = None, *, name: str | None = None) -> threading.Condition:
        """Create a condition variable.

        Args:
            lock: A Lock or RLock of distsync; None uses an RLock that belongs to the condition.
            name: Name of the condition, shared by all processes that use this manager. None gives
                it a unique name.

        Returns:
            A ``distsync.threading.Condition``.

        Raises:
            ProcessError: The manager was not started, or has shut down.
        """
        made: threading.Condition = self._object(_managed_locks.ManagedCondition, name, lock)
        return made

    def Event(self, *, name: str | None = None) -> threading.Event:
        """Create a flag that processes can wait for.

        Args:
            name: Name of the event, shared by all processes that use this manager. None gives it a
                unique name.

        Returns:
            A ``distsync.threading.Event``.

        Raises:
            ProcessError: The manager was not started, or has shut down.
        """
        made: threading.Event = self._object(threading.Event, name)
        return made

    def Barrier(
        self,
        parties: int,
        action: Callable[[], Any] | None = None,
        timeout: float | None = None,
        *,
        name: str | None = None,
    ) -> threading.Barrier:
        """Create a barrier at which threads of any processes wait for each other.

        Args:
            parties: Number of threads to wait for, 1 or more. It must be the same in all processes.
            action: Called without arguments by one of the threads, before they are released; None
                calls nothing. It must pickle if the barrier is sent to another process.
            timeout: Default timeout of ``wait()`` in seconds; None waits forever.
            name: Name of the barrier, shared by all processes that use this manager. None gives it
                a unique name.

        Returns:
            A ``distsync.threading.Barrier``.

        Raises:
            ProcessError: The manager was not started, or has shut down.
            ValueError: ``parties`` is less than 1.
        """
        made: threading.Barrier = self._object(threading.Barrier, name, parties, action, timeout)
        return made

    def Pool(self, *args: Any, **keywords: Any) -> Any:
        """Create a pool that can be passed to other processes.

        Its workers are children of this process. Any process that has it can put tasks, and can
        close or terminate it for all. The tasks of a process are removed when it exits. The pool
        ends when the manager is shut down, or when this process exits, at the latest.

        Args:
            *args: Positional arguments of ``distsync.multiprocessing.Pool``.
            **keywords: Keyword arguments of ``distsync.multiprocessing.Pool``. With ``name``, the
                result is such a Pool, which cannot be passed, because other processes find it by
                its name.

        Returns:
            The pool.

        Raises:
            ProcessError: The manager was not started, or has shut down.

        Note:
            Costs as many requests as ``distsync.multiprocessing.Pool`` with a name, and 1 more in
            each process that uses it, for a watch.
        """
        from distsync import multiprocessing  # imported already: it is the package of this module

        if keywords.get("name") is not None:
            return multiprocessing.Pool(*args, **keywords)
        with importing():
            from distsync.multiprocessing import _managed_pool

        place = self._place("pool", None)
        client, path = keywords.pop("client", None) or place["client"], place["path"]
        pool = _managed_pool.OwnedPool(path, *args, client=client, **keywords)
        self._pools.add(pool)
        return _managed_pool.PoolProxy(path, client, pool.owner.caller, pool)


@stable_pickle_name
def manager(kind: type[SyncManager], path: str, origin: Any) -> SyncManager:
    """Return an unpickled manager. It creates objects, and deletes none when it shuts down.

    Args:
        kind: The class of the manager.
        path: Path of the manager's znode.
        origin: Identification of its client; None means the default client.

    Returns:
        The manager.
    """
    made = kind(path=path, client=None if origin is None else default_client.client_of(origin))
    made.connect()
    return made


def Manager(*, ctx: Any = None, name: str | None = None, client: Client | None = None) -> SyncManager:
    """Create a manager, and start it. With a name, it is the same for all processes that use the name.

    Args:
        ctx: Ignored, because there is no server process.
        name: Name of the manager, shared by all processes that use it. None makes a manager of
            which no other process knows until it is sent there.
        client: The client to use; None uses the default client.

    Returns:
        The manager.

    Note:
        Costs no request.

        Source: ``multiprocessing.Manager``.
    """
    made = SyncManager(ctx=ctx, name=name, client=client)
    made.start()
    return made


__getattr__ = stdlib_getattr("multiprocessing.managers", __name__)
