"""The pool of a manager: each process that gets it calls it, and its workers are children of its owner.

The owner is the process that has created the pool. Any process may close or terminate it for all. See
_protocols/pool/owner.py.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from multiprocessing import pool as _stdlib
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from distsync._client import default_client
from distsync._log import OwnLogger
from distsync._pickle import stable_pickle_name
from distsync._protocols.pool.owner import CLOSE, ENDED, RUN, TERMINATE, PoolOwner
from distsync.errors import ClientClosedError, DistsyncError
from distsync.multiprocessing._pool.pool_client import LAST_S, PoolClient
from distsync.multiprocessing._pool.pool_worker import new_core
from distsync.multiprocessing.pool import Pool

if TYPE_CHECKING:
    from distsync._client.client import Client

logger = OwnLogger("distsync.multiprocessing")

#: The pools that are called, by process, path and client. A forked child uses none of its parent's.
_pools: weakref.WeakValueDictionary[tuple[int, str, Client], ManagedPool] = weakref.WeakValueDictionary()
#: The locks under which processes begin to call pools. A thread of the parent may hold the parent's.
_locks: dict[int, threading.RLock] = {}


class ManagedPool(Pool):
    """A pool of a manager, in one of the processes that call it. It is kept until it ends.

    Args:
        path: Path of the pool.
        *args: Positional arguments of Pool.
        **keywords: Keyword arguments of Pool.
    """

    _submitting: PoolClient

    def __init__(self, path: str, *args: Any, **keywords: Any) -> None:
        self._place = path
        super().__init__(*args, **keywords)
        self._watcher = threading.Thread(target=self._watch, name="distsync-pool-watch", daemon=True)

    def _start_watching(self) -> None:
        _pools[os.getpid(), self.path, self.client] = self
        self._watcher.start()

    def _watch(self) -> None:
        """Do what other processes request, until the pool has ended."""
        raise NotImplementedError

    def _request(self, owner: PoolOwner, state: str) -> None:
        self._ask(owner.request(state), LAST_S)

    def _join_threads(self, *threads: threading.Thread | None) -> None:
        """Wait until these threads have ended, or no server has answered for the session timeout."""
        limit = self._submitting.outage_limit()
        for thread in threads:
            if thread is not None:
                limit.join(thread)

    def __del__(self, *_: Any) -> None:
        """Do not warn if the pool is running at the end of the process."""


class OwnedPool(ManagedPool):
    """The pool in the process that has created it."""

    def __init__(self, path: str, *args: Any, **keywords: Any) -> None:
        super().__init__(path, *args, **keywords)
        self.owner = self._registered_owner()
        self._lock = threading.Lock()
        self._closer: threading.Thread | None = None
        self._start_watching()

    def _registered_owner(self) -> PoolOwner:
        return PoolOwner(self._shared_state(self._make_core), self._submitting.caller)

    def _watch(self) -> None:
        known = RUN
        try:
            while not self.owner.stop.fired:
                known = self._run(self.owner.wait(known))
                if known == TERMINATE:
                    self.terminate()
                elif known == CLOSE:
                    self._begin_to_close()
                elif known == ENDED:
                    if not self._submitting.wait_for_registration(self.owner.caller):
                        return
                    self.owner, known = self._registered_owner(), RUN
        except ClientClosedError:
            pass
        except DistsyncError as error:
            logger.warning("cannot see whether another process ends the pool %s: %s", self.path, error)

    def close(self) -> None:
        """Refuse further tasks of all processes, and stop the workers once the tasks of all are done."""
        if self._state == _stdlib.RUN:
            try:
                self._request(self.owner, CLOSE)
            finally:
                self._begin_to_close()

    def _begin_to_close(self) -> None:
        with self._lock:
            if self._state != _stdlib.RUN:
                return
            self._state = _stdlib.CLOSE
            self._closer = threading.Thread(target=self._close_when_alone, name="distsync-pool-close", daemon=True)
            self._closer.start()

    def _close_when_alone(self) -> None:
        try:
            self._run(self.owner.wait_until_alone())
        except ClientClosedError:
            pass
        except DistsyncError as error:
            logger.warning("the pool %s ends, although other processes may still call it: %s", self.path, error)
        self._submitting.close()
        self._submitting.join()
        self.owner.stop.fire()

    def terminate(self) -> None:
        """Stop the workers at once. Waiters for results in any process get a TaskLostError."""
        super().terminate()
        self.owner.stop.fire()

    def join(self) -> None:
        super().join()
        self._join_threads(self._closer, self._watcher)


class CalledPool(ManagedPool):
    """The pool in another process than that of its owner.

    Args:
        path: Path of the pool.
        client: The client to use; None uses the default client.
        owner: GUID of the owner, as a caller of the pool.
    """

    _needs_workers = False

    def __init__(self, path: str, client: Client | None, owner: str) -> None:
        super().__init__(path, 0, client=client)
        self._owner = PoolOwner(self._shared_state(self._make_core), owner)
        self._start_watching()

    def _watch(self) -> None:
        known = RUN
        try:
            while known != ENDED:
                known = self._run(self._owner.wait(known))
                if known == CLOSE:
                    super().close()
        except ClientClosedError:
            pass
        except DistsyncError as error:
            logger.warning("cannot see whether the pool %s has ended: %s", self.path, error)
        finally:
            super().terminate()

    def close(self) -> None:
        """Refuse further tasks of all processes, and let the pool end once the tasks of all are done."""
        if self._state == _stdlib.RUN:
            super().close()
            self._request(self._owner, CLOSE)

    def terminate(self) -> None:
        """Terminate the pool for all processes, and wait for its end."""
        try:
            if self._watcher.is_alive():
                self._request(self._owner, TERMINATE)
        finally:
            super().terminate()
        self._join_threads(self._watcher)

    def join(self) -> None:
        super().join()
        self._join_threads(self._watcher)


class EndedPool:
    """A pool that had ended before this process called it."""

    def close(self) -> None:
        """Do nothing."""

    terminate = join = close

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        return self._refuse

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ValueError("Pool not running")


class PoolProxy:
    """A pool of a manager, with the methods of the stdlib's proxy.

    Args:
        path: Path of the pool.
        client: The client to use; None uses the default client.
        owner: GUID of the owner, as a caller of the pool.
        pool: The pool, in the process of its owner.
    """

    def __init__(self, path: str, client: Client | None, owner: str, pool: OwnedPool | None = None) -> None:
        self._path, self._explicit_client, self._owner = path, client, owner
        #: The pool of this process, or of a parent that forked it. It may have ended.
        self._latest: Any = pool

    def _pool(self) -> Any:
        """Return the pool of this process, which all its proxies share."""
        pid, client = os.getpid(), self._explicit_client or default_client.default_client()
        key = pid, self._path, client
        found: Any = _pools.get(key)
        if found is None:
            with _locks.setdefault(pid, threading.RLock()):
                found = _pools.get(key) or self._called(client)
        self._latest = found
        return found

    def _called(self, client: Client) -> CalledPool | EndedPool:
        state = client.run(PoolOwner(new_core(client, self._path), self._owner).state())
        if state == ENDED:
            return EndedPool()
        called = CalledPool(self._path, self._explicit_client, self._owner)
        if state != RUN:
            Pool.close(called)
        return called

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._pool(), name)

    def __enter__(self) -> PoolProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool().terminate()

    def __repr__(self) -> str:
        return f"<pool of a manager at {self._path}>"

    def __reduce__(self) -> tuple[Any, ...]:
        pool, client = self._latest, self._explicit_client or default_client.default_client()
        owner = pool.owner.caller if isinstance(pool, OwnedPool) else self._owner
        return managed_pool, (self._path, owner, client.origin)


@stable_pickle_name
def managed_pool(path: str, owner: str, origin: Any) -> PoolProxy:
    """Return an unpickled pool of a manager.

    Args:
        path: Path of the pool.
        owner: GUID of the owner, as a caller of the pool.
        origin: Identification of its client; None means the default client.

    Returns:
        The pool, which has its first request at its first use.
    """
    return PoolProxy(path, None if origin is None else default_client.client_of(origin), owner)
