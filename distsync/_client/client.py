"""The client: one ZooKeeper session of this process, and what is done over it.

Rules for this file: what the faces see of _client/. No kazoo here, and no decision that a part below can make.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from distsync._client import gevent_check, lifecycle, tls
from distsync._client.acls import Access
from distsync._client.connection_state import ClientStatistics, ConnectionState
from distsync._client.ensemble_status import Server, ask_all
from distsync._client.lease.lease_clock import LeaseClock
from distsync._client.naming import paths
from distsync._client.runtime import ClientRuntime
from distsync._client.settings import read_settings
from distsync._client.wait_log import Loggable
from distsync._protocols.steps import Connected, Signal, Sync
from distsync.errors import ClientClosedError, DisconnectedError, DistsyncError, SessionLostError

Result = TypeVar("Result")


class Client:
    """A client of a ZooKeeper ensemble, or of this user's embedded server.

    >>> client = Client("zk1:2181,zk2:2181", namespace="/shop")     # doctest: +SKIP
    >>> client.run(protocol, timeout=5.0)                           # doctest: +SKIP

    Making one starts nothing; it connects at its first use. A forked child has the client with nothing in it.
    """

    __module__ = "distsync"

    def __init__(self, hosts: str | None = None, **settings: Any) -> None:
        """The settings are those of distsync.connect(); what is not given is read from the environment.

        Raises: ConfigurationError, TypeError.
        Cost: no request.
        """
        self.settings = used = read_settings(hosts=hosts, **settings)
        if used.tls:
            tls.check_files(used.tls_ca, used.tls_cert, used.tls_key, used.tls_key_password)
        where, slash, chroot = (self.settings.hosts or "").partition("/")
        self.hosts = where or None
        # A chroot is a longer namespace: its znode is made on demand like every other parent.
        self.namespace = f"/{chroot}".rstrip("/") + self.settings.namespace if slash else self.settings.namespace
        self.codec = self.settings.payload_codec()
        self._access = Access(self.namespace, self.settings.acl, self.settings.auth)
        self.closed = False
        self._core: ClientRuntime | None = None
        self._starting = threading.RLock()
        self._closer: int | None = None
        self._listeners: list[Callable[[str], object]] = []
        self._before: ClientStatistics | None = None
        self._close_hooks: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {}
        lifecycle.register(self)

    def __repr__(self) -> str:
        return f"<distsync.Client {self.hosts or 'embedded'} {self.namespace} {self.state}>"

    # ---- doing things

    def run(
        self, protocol: Coroutine[Any, Any, Result], timeout: float | None = None, subject: Loggable | None = None
    ) -> Result:
        """``protocol`` has ended, driven in this thread.

        Units: seconds; None: without end. ``subject``: the object that the log names if this waits for long.
        Returns: its result. Raises: what it raises; UnreachableError if there is no first connection within the time
        (at most connect_timeout); ClientClosedError.
        On cancel: KeyboardInterrupt is thrown into the protocol, which then has a second to clean up.
        """
        try:
            core = self._opened("a call")
        except BaseException:
            protocol.close()
            raise
        result: Result = core.run(protocol, timeout, subject)
        return result

    async def run_async(
        self, protocol: Coroutine[Any, Any, Result], timeout: float | None = None, subject: Loggable | None = None
    ) -> Result:
        """``protocol`` has ended, awaited on the running loop, which goes on meanwhile. As `run`, but:

        On cancel: asyncio.CancelledError is thrown into the protocol, which then has a second to clean up.
        """
        from distsync._client.driver import asyncio_driver  # with asyncio, so not before somebody uses it

        try:
            core = self._opened("a call")
        except BaseException:
            protocol.close()
            raise
        result: Result = await asyncio_driver.run(core, protocol, timeout, subject)
        return result

    def tell(self, protocol: Coroutine[Any, Any, Any]) -> Any:
        """``protocol`` is begun in this thread, and goes as far as it can without waiting; the keeper does the rest.
        Never waits. Returns its result, or raises its error, if it is over; else None."""
        try:
            core = self._opened("a call")
        except BaseException:
            protocol.close()
            raise
        return core.tell(protocol)

    @property
    def is_started(self) -> bool:
        """Whether it was used."""
        return self._core is not None

    def start(self) -> None:
        """The connection is being made."""
        self._opened("a call")

    def interrupt(self, thread: int, error: BaseException) -> None:
        """A call that waits in the thread with this identifier, if there is one, ends with ``error`` and leaves no
        znode behind. Never waits."""
        if self._core is not None:
            self._core.interrupt(thread, error)

    def background(self, protocol: Coroutine[Any, Any, Any]) -> None:
        """``protocol`` will be driven by the keeper, until it is over or the client closed. Never waits; safe in
        finalizers and callbacks. Without a connection that was ever asked for there is nothing to do."""
        core = self._core
        if core is None:
            protocol.close()
        else:
            core.background(protocol)

    def at_close(self, path: str, protocol: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """``protocol()`` is done, for a bounded time, when the client closes in good order, unless ``path`` is
        discarded before. No request now; a client that nothing uses is connected for it at its close."""
        if self._core is None and not self.closed:
            self._close_hooks[path] = protocol
        else:
            self._opened("something to do at its end").at_close(protocol, path)

    def may_wait(self) -> bool:
        """Whether `run` is possible here: not in distsync's own threads (but for that of the callbacks), and not in
        a finalizer that the garbage collector runs in the midst of another call."""
        return self._core is None or self._core.may_wait_here()

    def on_loss(self, loss: Signal, callback: Callable[[], object]) -> None:
        """``callback`` is called once, in the thread of callbacks, when ``loss`` fires, or soon if it has."""
        dispatcher = self._opened("a callback").dispatcher
        dispatcher.prepare()
        once = [callback]

        def fired() -> None:
            if once:
                dispatcher.call(once.pop())

        loss.subscribe(fired)

    def call_back(self, callback: Callable[[], object]) -> None:
        """``callback`` is called soon, in the thread of callbacks. Never waits."""
        dispatcher = self._opened("a callback").dispatcher
        dispatcher.prepare()
        dispatcher.call(callback)

    def on_state(self, callback: Callable[[str], object]) -> None:
        """``callback(state)`` is called, in the thread of callbacks, once with each change of `state`."""
        self._listeners.append(callback)
        if self._core is not None:
            self._core.dispatcher.prepare()

    def off_state(self, callback: Callable[[str], object]) -> None:
        """``callback`` is called no more. Nothing happens if it was not."""
        with suppress(ValueError):
            self._listeners.remove(callback)

    # ---- looking

    def sync(self, path: str = "/", timeout: float | None = None) -> None:
        """The server that this client is connected to knows all that the ensemble's leader knew when this was called:
        what is read next is not older. A follower or observer lags behind, and answers reads without asking anybody.

        Units: seconds; None: without end.
        Raises: DeadlineError (a TimeoutError), UnreachableError.
        On loss: of the connection: it is asked again on the next one.
        Cost: 1 request.
        Source: ZooKeeper's sync; Zab, followers.
        """
        self.run(_synced(paths.check_path(path) if path != "/" else path), timeout)

    def ensemble(self, timeout: float = 2.0) -> list[Server]:
        """Each server of ``hosts``: role (leader, follower, observer, standalone, embedded, unknown, unreachable),
        zxid, epoch and counter, as it says itself; and what to do where it says nothing.

        Units: seconds, for each server; all are asked at once.
        Cost: 1 connection and the word ``srvr`` to each, beside the session.
        Source: ZooKeeper's four-letter words; Zab, epoch and counter.
        """
        if not timeout > 0:
            raise ValueError(f"timeout must be seconds above 0, not {timeout!r}")
        core = self._opened("a look at its servers")
        if not core.link.hosts:
            self.run(_connected(), self.settings.connect_timeout)
        return ask_all(core.link.hosts, self.settings, timeout)

    @property
    def session_id(self) -> int | None:
        """The id of the ZooKeeper session; None while there is none. No request."""
        return self._core.lease.session_id if self._core else None

    @property
    def session_timeout(self) -> float | None:
        """Seconds after which the servers end the session of who is silent, as they have granted it: what was asked of
        them is ``settings.session_timeout``. None before the first session. No request."""
        return (self._core.lease.timeout or None) if self._core else None

    @property
    def state(self) -> str:
        """The connection is "connecting" (for the first time), "connected", "suspended" (it is being made anew, and the
        session may live on), "lost" (so is the session, or it has been away for longer than that may live; what was
        held is held no more) or "closed"."""
        if self.closed:
            return ConnectionState.CLOSED.value
        return self._core.link.state.value if self._core else ConnectionState.CONNECTING.value

    def is_proven(self, session_id: int) -> bool:
        """Whether the lease clock proves at this moment that session ``session_id`` lives. No request."""
        core = self._core
        return core is not None and core.is_proven(session_id)

    def _fast_path_state(self) -> tuple[Any, LeaseClock]:
        """What a step of a protocol needs that is done without a driver (_objects/lock_fast_path.py)."""
        core = self._opened("a call")
        return core.mutex, core.lease

    def statistics(self) -> ClientStatistics:
        """What was sent and came so far, in this process. No request."""
        if self._core is not None:
            return self._core.link.statistics()
        return self._before or ClientStatistics({}, 0, 0, 0)

    def path(self, kind: str, name: str) -> str:
        """The znode of the object ``name`` of this kind."""
        return paths.object_path(self.namespace, kind, name)

    def protect(self, path: str, acl: Iterable[Any]) -> None:
        """What this client makes at ``path`` and below it, from now on, has this ACL. What is there keeps its own.

        Cost: no request.
        """
        self._access.protect(path, acl)

    def local(self, path: str, factory: Callable[[], Result], kind: str = "", user: Any = None) -> Result:
        """The state that the threads of this process share about ``path``. A forked child has its own, so it is to
        be asked for anew in each call. Raises NameInUseError if it is that of an object of another ``kind``. It stays
        as long as a ``user`` of it does, and is not idle; without a user, as long as the client."""
        result: Result = self._opened("an object").locals.of(path, kind, factory, user)
        return result

    def discard(self, path: str, protocol: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """What the threads share about ``path`` is dropped, since nobody uses its object any more, and ``protocol()``
        is done in the background. Never waits; safe in finalizers."""
        core = self._core
        self._close_hooks.pop(path, None)
        self._access.forget(path)
        if core is not None and core.locals.drop(path):
            core.discard(path, protocol)

    @property
    def origin(self) -> tuple[str | None, str]:
        """What a pickle says of this client: hosts and namespace, and no secret."""
        return self.settings.hosts, self.settings.namespace

    # ---- life

    def _opened(self, call: str) -> ClientRuntime:
        """The core, started at the first use."""
        core = self._core
        if core is None:
            with self._starting:
                if self.closed:
                    raise ClientClosedError(call)
                core = self._core or self._started()
        if core.closing or self.closed:
            raise ClientClosedError(call)
        return core

    def _started(self) -> ClientRuntime:
        """A finalizer that the collector runs in here may use the client, and so start it: then that is its core. One
        whose start failed, or was interrupted, is nobody's: the next use makes another."""
        gevent_check.check_patched()
        lifecycle.in_use()
        core = ClientRuntime(self.settings, self.hosts, self._access, self._changed)
        if self._core is None:
            try:
                self._core = core
                core.start()
                for path, work in self._close_hooks.items():
                    core.at_close(work, path)
                if self._listeners:
                    core.dispatcher.prepare()
            except BaseException:
                self._core = None
                core.close()
                raise
        return self._core

    def _started_to_part(self) -> ClientRuntime | None:
        """Only other processes have used what was made here. None: it could not be started; at the end of a process
        Python 3.12 gives nobody a thread."""
        with suppress(DistsyncError, OSError, RuntimeError):
            self._started().run(_connected(), 0.0)
        return self._core

    def _changed(self, state: ConnectionState) -> None:
        core = self._core
        for listener in tuple(self._listeners):
            if core is not None:
                core.dispatcher.call(partial(listener, state.value))

    def close(self) -> None:
        """The session is closed, and with it everything held; nothing of the client remains.

        Units: takes less than 2 seconds, also without a server. Callable from everywhere, again and again.
        On loss: calls that wait raise ClientClosedError; what was held is lost ("client closed").
        On cancel: KeyboardInterrupt ends it halfway; the next close, or the one at the end of the process, does it all.
        """
        me = threading.get_ident()
        with self._starting:
            core = self._core or (self._started_to_part() if self._close_hooks and not self.closed else None)
            self.closed = True
            if core is None or self._closer not in (None, me):
                return
            self._closer = me  # who is interrupted in the next line may come again
        try:
            core.close()
            self._before, self._core = core.link.statistics(), None
        finally:
            self._closer = None

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def after_fork_in_child(self) -> None:
        """In a forked child: nothing of the parent's session is ours."""
        core, self._core = self._core, None
        self._close_hooks = {}
        self._starting, self._closer = threading.RLock(), None
        if core is not None:
            core.after_fork_in_child()


async def _connected() -> None:
    await Connected()


async def _synced(path: str) -> None:
    while True:
        try:
            await Connected()
            await Sync(path)
            return
        except (DisconnectedError, SessionLostError):
            continue
