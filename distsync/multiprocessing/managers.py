"""Manager: objects of all kinds that processes share, as ``multiprocessing.Manager``, without a server process.

Rules for this file: no znode; it gives names to objects, and removes what they leave.

What a manager makes is found below its own path. A manager without a name is known to those only that it, or what it
has made, is sent to; all that it has made is gone when it shuts down, or its client closes. A manager with a name is
the same for all who know the name, and so are its objects with a name; they stay until somebody calls ``clear``.
"""

from __future__ import annotations

import array
import builtins
import uuid
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing import ProcessError
from multiprocessing import managers as _stdlib
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from distsync import queue, threading
from distsync._client import lifecycle
from distsync._client.naming import inference, paths
from distsync._objects import base
from distsync._objects.base import SharedObject
from distsync._pickle import at_home
from distsync._protocols.delete_tree import remove_tree
from distsync.multiprocessing._manager_proxies import (
    ArrayProxy,
    DictProxy,
    ListProxy,
    NamespaceProxy,
    Shared,
    ValueProxy,
)
from distsync.multiprocessing._stdlib_fallback import stdlib_getattr

if TYPE_CHECKING:
    from distsync._client.client import Client

_OURS = ["ArrayProxy", "DictProxy", "ListProxy", "Manager", "NamespaceProxy", "SyncManager", "ValueProxy"]
__all__ = [*_OURS, *sorted({*_stdlib.__all__} - {*_OURS})]  # noqa: PLE0604  # others: see __getattr__

#: The methods are called so too.
_Array, _dict, _list = array.array, dict, list

NO_SERVER = "a manager of distsync is no process: {0}"


class SyncManager(SharedObject):
    """What makes objects that processes share, and removes them at its end.

    Units: what is in a dict, list, Namespace, Value or Array together takes 1,000,000 bytes at most.
    Raises: ProcessError for an object that is asked of a manager that was not started, or has shut down.
    Cost: an object with data 1 request and 1 for each new part of its path; others none before their first use.
    Source: ``multiprocessing.managers.SyncManager``.

    Znodes: ``<namespace>/manager/<name>/<kind>/<name>``, each object's own.

    >>> with Manager() as manager:
    ...     ages = manager.dict(ann=31)
    ...     ages["bob"] = 27
    ...     print(ages)
    {'ann': 31, 'bob': 27}
    """

    _kind = "manager"

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
        fresh = None if self._shared else inference.fresh_name().text  # also where it is bound to a name of a module
        super().__init__(fresh or name, client, path)

    @property
    def address(self) -> str | None:
        """Where the servers are; None: this user's embedded one."""
        hosts: str | None = self.client.hosts
        return hosts

    def start(self, initializer: Callable[..., Any] | None = None, initargs: Iterable[Any] = ()) -> None:
        """Objects can be made; without a name of its own they are removed when its client closes. Cost: no request."""
        if self._state != "initial":
            raise ProcessError("Already started server" if self._state == "started" else "Manager has shut down")
        if initializer is not None:
            raise TypeError(NO_SERVER.format("there is nothing for an initializer to run in"))
        self._state = "started"
        if not self._shared:
            self.client.at_close(self.path, partial(remove_tree, self.path))

    def connect(self) -> None:
        """Objects can be made; nothing is removed at the end of this one. Cost: no request."""
        self._state = "started"

    def shutdown(self) -> None:
        """No object can be made any more; without a name of its own, all that were made are gone.

        Cost: 1 request for each znode that they are made of; with a name none.
        """
        if self._state == "started" and not self._shared:
            self.clear()
        self._state = "shutdown"

    def clear(self) -> None:
        """All objects that were made are gone, with a name or without. Cost: 1 request for each of their znodes."""
        self._run(remove_tree(self.path))

    def join(self, timeout: float | None = None) -> None:
        """It has shut down, as far as there is anything to wait for. Cost: no request."""

    def __enter__(self) -> SyncManager:
        if self._state == "initial":
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def __reduce__(self) -> tuple[Any, ...]:
        origin = None if self._explicit_client is None else self._explicit_client.origin
        return manager, (type(self), self._explicit_path or self.path, origin)

    @classmethod
    def register(cls, typeid: str, *args: Any, **keywords: Any) -> NoReturn:
        """Refused: there is no process that could keep an object of a class of the program's own.

        Raises: NotImplementedError, always.
        """
        instead = f"nobody can keep the object behind {typeid!r}; keep its data in a dict or Namespace, under a Lock"
        raise NotImplementedError(NO_SERVER.format(instead))

    def get_server(self) -> NoReturn:
        """Refused: there is none. Raises: NotImplementedError, always."""
        raise NotImplementedError(NO_SERVER.format("there is no server to run"))

    # ---- making objects

    def _place(self, kind: str, name: str | None) -> builtins.dict[str, Any]:
        """Where an object of this manager is."""
        if self._state != "started":
            raise ProcessError(f"Manager is not started (state {self._state})")
        part = str(uuid.uuid4()) if name is None else paths.encode_name(name)
        return {"client": self._explicit_client, "path": f"{self.path}/{kind}/{part}"}

    def _object(self, make: Callable[..., Any], name: str | None, *args: Any, **keywords: Any) -> Any:
        return make(*args, **keywords, **self._place(make.__name__.lower(), name))

    def _data(self, kind: type[Shared], name: str | None, value: Any) -> Any:
        """A container with this value, if it is new. Without a name it goes when nobody can know it any more."""
        made = kind(**self._place(kind._typeid, name))
        made._begin_with(value)
        if name is None:
            made._finalizer = weakref.finalize(
                made, base.forget_unnamed, made.client, made.path, lifecycle.fork_count()
            )
            made._finalizer.atexit = False
        return made

    def dict(self, *args: Any, name: str | None = None, **items: Any) -> DictProxy:
        """A dict; with a ``name`` the one that others have made, if they have. See DictProxy.

        An item that is itself called "name" is given in a dict: ``manager.dict({"name": 1})``.
        """
        made: DictProxy = self._data(DictProxy, name, _dict(*args, **items))
        return made

    def list(self, items: Iterable[Any] = (), /, *, name: str | None = None) -> ListProxy:
        """A list; with a ``name`` the one that others have made, if they have. See ListProxy."""
        made: ListProxy = self._data(ListProxy, name, _list(items))
        return made

    def Namespace(self, *, name: str | None = None, **attributes: Any) -> NamespaceProxy:
        """An object with attributes; one that is called "name" is set afterwards. See NamespaceProxy."""
        return NamespaceProxy(self._data(DictProxy, name, attributes))

    def Value(self, typecode: Any, value: Any, lock: Any = True, *, name: str | None = None) -> ValueProxy:
        """Anything that pickles; the type code and the lock are not used, as multiprocessing's. See ValueProxy."""
        made: ValueProxy = self._data(ValueProxy, name, [value])
        return made

    def Array(self, typecode: str, sequence: Any, lock: Any = True, *, name: str | None = None) -> ArrayProxy:
        """An ``array.array``. See ArrayProxy."""
        made: ArrayProxy = self._data(ArrayProxy, name, _Array(typecode, sequence))
        return made

    def Queue(self, maxsize: int = 0, *, name: str | None = None) -> queue.Queue[Any]:
        """A queue without a feeder, as multiprocessing's manager has it. See ``distsync.queue.Queue``."""
        made: queue.Queue[Any] = self._object(queue.Queue, name, maxsize)
        return made

    def JoinableQueue(self, maxsize: int = 0, *, name: str | None = None) -> queue.Queue[Any]:
        """The same: each queue of a manager has ``task_done`` and ``join``."""
        return self.Queue(maxsize, name=name)

    def Lock(self, *, name: str | None = None) -> threading.Lock:
        """See ``distsync.threading.Lock``."""
        made: threading.Lock = self._object(threading.Lock, name)
        return made

    def RLock(self, *, name: str | None = None) -> threading.RLock:
        """See ``distsync.threading.RLock``."""
        made: threading.RLock = self._object(threading.RLock, name)
        return made

    def Semaphore(self, value: int = 1, *, name: str | None = None) -> threading.Semaphore:
        """See ``distsync.threading.Semaphore``."""
        made: threading.Semaphore = self._object(threading.Semaphore, name, value)
        return made

    def BoundedSemaphore(self, value: int = 1, *, name: str | None = None) -> threading.BoundedSemaphore:
        """See ``distsync.threading.BoundedSemaphore``."""
        made: threading.BoundedSemaphore = self._object(threading.BoundedSemaphore, name, value)
        return made

    def Condition(self, lock: Any = None, *, name: str | None = None) -> threading.Condition:
        """See ``distsync.threading.Condition``."""
        made: threading.Condition = self._object(threading.Condition, name, lock)
        return made

    def Event(self, *, name: str | None = None) -> threading.Event:
        """See ``distsync.threading.Event``."""
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
        """See ``distsync.threading.Barrier``; the action travels, so it must pickle."""
        made: threading.Barrier = self._object(threading.Barrier, name, parties, action, timeout)
        return made

    def Pool(self, *args: Any, **keywords: Any) -> Any:
        """A pool of processes, which are this process's. See ``distsync.multiprocessing.Pool``."""
        from distsync import multiprocessing

        return multiprocessing.Pool(*args, **keywords)


@at_home
def manager(kind: type[SyncManager], path: str, origin: Any) -> SyncManager:
    """Return a manager where its pickle arrived: it makes objects, and removes nothing at its end."""
    from distsync._client import default_client

    made = kind(path=path, client=None if origin is None else default_client.client_of(origin))
    made.connect()
    return made


def Manager(*, ctx: Any = None, name: str | None = None, client: Client | None = None) -> SyncManager:
    """A manager that is started. With a ``name`` it is the same for all who know it.

    Cost: no request.
    Source: ``multiprocessing.Manager``.
    """
    made = SyncManager(ctx=ctx, name=name, client=client)
    made.start()
    return made


__getattr__ = stdlib_getattr("multiprocessing.managers", __name__)
