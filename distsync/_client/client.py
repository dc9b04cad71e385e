"""The client: one ZooKeeper session of this process, and the calls that use it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from os import getpid
from types import TracebackType
from typing import Any, TypeVar

from distsync._client import gevent_check, lifecycle, tls
from distsync._client.acls import Access
from distsync._client.connection_state import ClientStatistics, ConnectionState
from distsync._client.deadlines import ask_timeout, validate_call_timeout
from distsync._client.embedded_locator import embedded_server_identity
from distsync._client.ensemble_status import Server, ask_all
from distsync._client.lease.lease_clock import LeaseClock
from distsync._client.lifecycle import process
from distsync._client.naming import paths
from distsync._client.runtime import ClientRuntime, wait_until_connected
from distsync._client.settings import read_settings
from distsync._client.wait_log import Loggable
from distsync._import_gate import importing
from distsync._protocols.steps import Connected, Signal, Sync
from distsync.errors import ClientClosedError, DisconnectedError, DistsyncError, SessionLostError

Result = TypeVar("Result")


class Client:
    """A client of a ZooKeeper ensemble, or of this user's embedded server.

    Creating a client starts nothing: it connects at its first use. A forked child has the client
    without a session and without held objects, and connects at its own first use.

    Args:
        hosts: The servers, such as ``"host:port,host:port/chroot"``. None uses DISTSYNC_HOSTS and,
            if that is not set, this user's embedded server.
        **settings: Further settings, which are those of `connect`. A missing one is read from the
            environment.

    Raises:
        ConfigurationError: A setting is not valid.
        TypeError: A setting is unknown.

    Note:
        Costs no request.

    Example:
        >>> client = Client("zk1:2181,zk2:2181", namespace="/shop")     # doctest: +SKIP
        >>> client.run(protocol, timeout=5.0)                           # doctest: +SKIP
    """

    __module__ = "distsync"

    def __init__(self, hosts: str | None = None, **settings: Any) -> None:
        self.settings = used = read_settings(hosts=hosts, **settings)
        if used.tls:
            tls.check_files(used.tls_ca, used.tls_cert, used.tls_key, used.tls_key_password)
        where, slash, chroot = (self.settings.hosts or "").partition("/")
        self.hosts = where or None
        # A chroot is a longer namespace: its znode is created on demand like every other parent.
        self.namespace = f"/{chroot}".rstrip("/") + self.settings.namespace if slash else self.settings.namespace
        self.codec = self.settings.payload_codec()
        self._access = Access(self.namespace, self.settings.acl, self.settings.auth)
        self.closed = False
        self._latest_runtime: ClientRuntime | None = None
        self._start_lock = threading.RLock()
        self._closing_thread: int | None = None
        self._listeners: list[Callable[[str], object]] = []
        self._final_statistics: ClientStatistics | None = None
        self._held_at_end: tuple[str, ...] = ()
        #: When an end of the program first waited in this outage: see outage_limit.py.
        self.outage_noticed_at: float | None = None
        self._close_hooks: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {}
        lifecycle.register(self)

    def __repr__(self) -> str:
        return f"<distsync.Client {self.hosts or 'embedded'} {self.namespace} {self.state}>"

    # ---- calls

    def run(
        self, protocol: Coroutine[Any, Any, Result], timeout: float | None = None, subject: Loggable | None = None
    ) -> Result:
        """Drive a protocol in this thread, until it has ended.

        An error of the protocol is raised here.

        Args:
            protocol: The coroutine to drive.
            timeout: Maximum wait in seconds; None waits forever.
            subject: The object that the log names if this waits for long; None logs nothing.

        Returns:
            The result of the protocol.

        Raises:
            UnreachableError: No server could be reached for the first connection, within the
                timeout and at most ``connect_timeout``.
            ClientClosedError: The client is closed, or was closed during the call.
            UsageError: The call would block one of distsync's own threads, or a finalizer that
                interrupts another call.

        Note:
            If interrupted, KeyboardInterrupt is thrown into the protocol, which then has a second
            to clean up.
        """
        try:
            runtime = self._require_runtime("a call")
        except BaseException:
            protocol.close()
            raise
        try:
            result: Result = runtime.run(protocol, timeout, subject)
            return result
        except DistsyncError:
            if self._is_outlived():
                lifecycle.end_thread()
            raise

    async def run_async(
        self,
        protocol: Coroutine[Any, Any, Result],
        timeout: float | None = None,
        subject: Loggable | None = None,
        *,
        in_order: bool = False,
    ) -> Result:
        """Await a protocol on the running event loop, until it has ended.

        An error of the protocol is raised here.

        Args:
            protocol: The coroutine to drive.
            timeout: Maximum wait in seconds; None waits forever.
            subject: The object that the log names if this waits for long; None logs nothing.
            in_order: Whether a call with a timeout starts after earlier calls of this loop on the
                object, as one without a timeout always does.

        Returns:
            The result of the protocol.

        Raises:
            UnreachableError: No server could be reached for the first connection, within the
                timeout and at most ``connect_timeout``.
            ClientClosedError: The client is closed, or was closed during the call.
            DeadlineError: The timeout passed before the call could start.

        Note:
            If cancelled, asyncio.CancelledError is thrown into the protocol, which then has a
            second to clean up.
        """
        with importing():
            from asyncio import sleep

            from distsync._client.driver import asyncio_driver  # imports asyncio, so only if it is used

        try:
            runtime = self._require_runtime("a call")
        except BaseException:
            protocol.close()
            raise
        try:
            result: Result = await asyncio_driver.run(runtime, protocol, timeout, subject, in_order)
            return result
        except DistsyncError:
            if self._is_outlived():
                await sleep(lifecycle.DAEMON_S)
            raise

    def tell(self, protocol: Coroutine[Any, Any, Any]) -> Any:
        """Start a protocol in this thread, and continue it in the background once it has to wait.

        This never waits. If the protocol ends before it has to wait, its error is raised here.

        Args:
            protocol: The coroutine to drive.

        Returns:
            The result of the protocol if it has ended; otherwise None.

        Raises:
            ClientClosedError: The client is closed.
        """
        try:
            runtime = self._require_runtime("a call")
        except BaseException:
            protocol.close()
            raise
        return runtime.tell(protocol)

    @property
    def _runtime(self) -> ClientRuntime | None:
        """The runtime of this process, never that of a parent; None if there is none yet."""
        if getpid() != process.pid:
            lifecycle.notice_fork()
        return self._latest_runtime

    @property
    def is_started(self) -> bool:
        """Whether the client has been used."""
        return self._runtime is not None

    def start(self) -> None:
        """Start to connect, without waiting for the connection.

        Raises:
            ClientClosedError: The client is closed.
        """
        self._require_runtime("a call")

    def interrupt(self, thread: int, error: BaseException) -> None:
        """Raise an error in the call that waits in another thread, if there is one.

        This never waits. The call leaves no znode behind.

        Args:
            thread: Identifier of the thread.
            error: The error to raise.
        """
        if self._runtime is not None:
            self._runtime.interrupt(thread, error)

    def background(self, protocol: Coroutine[Any, Any, Any]) -> None:
        """Drive a protocol in the background, until it has ended or the client is closed.

        This never waits, and may be called in finalizers and callbacks. If the client has not been
        used, the protocol is closed at once, because nothing exists that it could clean up.

        Args:
            protocol: The coroutine to drive.
        """
        runtime = self._runtime
        if runtime is None:
            protocol.close()
        else:
            runtime.background(protocol)

    def at_close(self, path: str, protocol: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run a protocol for a limited time when the client is closed in good order.

        Args:
            path: The path with which `discard` cancels this.
            protocol: Called to make the coroutine to drive.

        Raises:
            ClientClosedError: The client is closed.

        Note:
            Costs no request now. A client that was not used connects for it when it is closed.
        """
        if self._runtime is None and not self.closed:
            self._close_hooks[path] = protocol
        else:
            self._require_runtime("at_close()").at_close(protocol, path)

    def may_wait(self) -> bool:
        """Return whether `run` is possible here.

        Returns:
            False in distsync's own threads, except for that of callbacks, and in a finalizer that
            the garbage collector runs in the middle of another call. True otherwise.
        """
        return self._runtime is None or self._runtime.may_wait_here()

    def is_in_call(self) -> bool:
        """Return whether the calling thread is already in a call, which continues only when the caller returns.

        Returns:
            True in a signal handler or finalizer that interrupts a call, and in a function that blocks the event
            loop of another call. False otherwise.
        """
        return self._runtime is not None and self._runtime.is_in_call()

    def on_loss(self, loss: Signal, callback: Callable[[], object]) -> None:
        """Call a function once when a loss is signalled, in the thread of callbacks.

        Args:
            loss: Signal of the loss. If it has fired, the function is called soon.
            callback: Called without arguments.

        Raises:
            ClientClosedError: The client is closed.
        """
        dispatcher = self._require_runtime("a callback").dispatcher
        dispatcher.prepare()
        once = [callback]

        def fired() -> None:
            if once:
                dispatcher.call(once.pop())

        loss.subscribe(fired)

    def call_back(self, callback: Callable[[], object]) -> None:
        """Call a function soon, in the thread of callbacks.

        This never waits.

        Args:
            callback: Called without arguments.

        Raises:
            ClientClosedError: The client is closed.
        """
        dispatcher = self._require_runtime("a callback").dispatcher
        dispatcher.prepare()
        dispatcher.call(callback)

    def on_state(self, callback: Callable[[str], object]) -> None:
        """Call a function once for each change of `state`, in the thread of callbacks.

        Args:
            callback: Called with the new state.
        """
        self._listeners.append(callback)
        if self._runtime is not None:
            self._runtime.dispatcher.prepare()

    def off_state(self, callback: Callable[[str], object]) -> None:
        """Stop calling a function that was given to `on_state`. Idempotent.

        Args:
            callback: The function.
        """
        with suppress(ValueError):
            self._listeners.remove(callback)

    # ---- state

    def sync(self, path: str = "/", timeout: float | None = None) -> None:
        """Wait until this client's server knows all that the leader knew when the call began.

        Later reads are then not older than this call. Otherwise a follower or observer may lag
        behind, because it answers reads without asking the leader.

        Args:
            path: Path whose changes are needed.
            timeout: Maximum wait in seconds; None uses the client's default, and -1 waits forever.

        Raises:
            ValueError: ``path`` is not a valid path, or ``timeout`` is negative.
            TypeError: ``timeout`` is not a number.
            DeadlineError: The server did not answer in time. Subclass of TimeoutError.
            UnreachableError: No server could be reached for the first connection.
            ClientClosedError: The client is closed.

        Note:
            Costs 1 request.

            If the connection is lost, it is requested again on the next one.

            Source: ZooKeeper's sync; Zab, followers.
        """
        checked = paths.check_path(path) if path != "/" else path
        seconds = ask_timeout(validate_call_timeout(timeout), self.settings.timeout if timeout is None else None)
        self.run(_sync(checked), seconds)

    def ensemble(self, timeout: float = 2.0) -> list[Server]:
        """Return the role and the last transaction of each server in ``hosts``.

        Args:
            timeout: Maximum wait in seconds for each server, greater than 0. All servers are asked
                at the same time.

        Returns:
            The servers, in the order of ``hosts``. A server that cannot be reached has a `problem`
            that says what to do.

        Raises:
            ValueError: ``timeout`` is not greater than 0.
            UnreachableError: The embedded server could not be reached.
            ClientClosedError: The client is closed.

        Note:
            Costs no request of the session. It opens 1 connection to each server, and sends the
            word ``srvr``.

            Source: ZooKeeper's four-letter words; Zab, epoch and counter.
        """
        if not timeout > 0:
            raise ValueError(f"timeout must be seconds above 0, not {timeout!r}")
        runtime = self._require_runtime("ensemble()")
        if not runtime.zk_session.hosts:
            self.run(wait_until_connected(), self.settings.connect_timeout)
        return ask_all(runtime.zk_session.hosts, self.settings, timeout)

    @property
    def session_id(self) -> int | None:
        """The id of the ZooKeeper session; None if there is none.

        Note:
            Costs no request.
        """
        return self._runtime.lease.session_id if self._runtime else None

    @property
    def session_timeout(self) -> float | None:
        """The session timeout that was granted, in seconds; None before the first session.

        The servers end the session of a client that is silent for this time.
        ``settings.session_timeout`` is the timeout that was requested.

        Note:
            Costs no request.
        """
        return (self._runtime.lease.timeout or None) if self._runtime else None

    @property
    def state(self) -> str:
        """The state of the connection.

        ``"connecting"`` means that the first connection is being made, ``"connected"`` that it
        exists. ``"suspended"`` means that it is being made again, and the session may still be
        alive. ``"lost"`` means that the session has ended, or that the connection was lost for
        longer than the session may live; all held objects are lost. ``"closed"`` means that the
        client is closed.

        Note:
            Costs no request.
        """
        if self.closed:
            return ConnectionState.CLOSED.value
        return self._runtime.zk_session.state.value if self._runtime else ConnectionState.CONNECTING.value

    def is_proven(self, session_id: int) -> bool:
        """Return whether the lease clock proves that a session is alive.

        Args:
            session_id: Id of the session.

        Returns:
            True if the session is provably alive now.

        Note:
            Costs no request.
        """
        runtime = self._runtime
        return runtime is not None and runtime.is_proven(session_id)

    def _fast_path_state(self) -> tuple[Any, LeaseClock]:
        """Return what lock_fast_path.py needs to run a step of a protocol without a driver."""
        runtime = self._require_runtime("a call")
        return runtime.mutex, runtime.lease

    def _outage(self) -> DistsyncError | None:
        """Return why the embedded server, which does not run, could not be started again; None if that is unknown."""
        runtime = self._runtime
        return None if runtime is None else runtime.outage()

    def statistics(self) -> ClientStatistics:
        """Return the numbers of requests and events in this process.

        Returns:
            The numbers since the client was created; zeros if it was not used.

        Note:
            Costs no request.
        """
        if self._runtime is not None:
            return self._runtime.zk_session.statistics()
        return self._final_statistics or ClientStatistics({}, 0, 0, 0)

    def path(self, kind: str, name: str) -> str:
        """Return the path of an object's znode.

        Args:
            kind: Kind of the object, such as ``"lock"``.
            name: Name of the object.

        Returns:
            The path, inside of this client's namespace.
        """
        return paths.object_path(self.namespace, kind, name)

    def at_session(self, protocol: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run a protocol in the background in each new session from now on.

        Args:
            protocol: Called to make the coroutine to drive.

        Raises:
            ClientClosedError: The client is closed.

        Note:
            Costs no request.
        """
        self._require_runtime("at_session()").session_hooks.append(protocol)

    def protect(self, path: str, acl: Iterable[Any]) -> None:
        """Use an ACL for the znodes that this client creates at a path and below it from now on.

        Existing znodes keep their ACLs.

        Args:
            path: The path.
            acl: kazoo ACLs.

        Note:
            Costs no request.
        """
        self._access.protect(path, acl)

    def local(self, path: str, factory: Callable[[], Result], kind: str = "", user: Any = None) -> Result:
        """Return the state of a path that the threads of this process share.

        A forked child has its own state, so call this again in each call. The state is dropped when
        it is idle and its ``user`` has been deleted; without a user, it lives as long as the
        client.

        Args:
            path: The path.
            factory: Called without arguments to make the state if there is none.
            kind: Kind of the object; empty means any.
            user: The object that uses the state; None means no user.

        Returns:
            The state.

        Raises:
            NameInUseError: The state of this path belongs to an object of another kind.
            ClientClosedError: The client is closed.
        """
        result: Result = self._require_runtime("an object").shared_states.of(path, kind, factory, user)
        return result

    def replace_local(self, path: str, user: Any) -> bool:
        """Drop the state of a path for another one, unless it is in use.

        Args:
            path: The path.
            user: The object that needs another state.

        Returns:
            Whether the state was dropped. False if it is not idle, or another object uses it.

        Raises:
            ClientClosedError: The client is closed.
        """
        return self._require_runtime("an object").shared_states.replace(path, user)

    def discard(self, path: str, protocol: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Drop the state of a path, because its object is deleted, and clean up in the background.

        This never waits, and may be called in finalizers.

        Args:
            path: The path.
            protocol: Called to make the coroutine that cleans up.
        """
        runtime = self._runtime
        self._close_hooks.pop(path, None)
        self._access.forget(path)
        if runtime is not None and runtime.shared_states.drop(path):
            runtime.discard(path, protocol)

    def forget_destroyed(self, path: str) -> None:
        """Notice at once that an object was deleted: what was held is lost, and new objects begin afresh.

        Args:
            path: The path of the object.
        """
        runtime = self._runtime
        if runtime is not None:
            runtime.lose_below(path)
            runtime.shared_states.forget_below(path)

    @property
    def origin(self) -> tuple[str | None, ...]:
        """The server and the namespace, which a pickled object contains; no secrets.

        They are the hosts and the namespace. For the embedded server, the hosts are None, and its
        identity follows.
        """
        hosts, namespace = self.settings.hosts, self.settings.namespace
        return (hosts, namespace) if hosts is not None else (None, namespace, embedded_server_identity())

    # ---- start and end

    def was_held_at_end(self, path: str) -> bool:
        """Return whether the end of this process has released an object by closing the client.

        Args:
            path: The path of the object.

        Returns:
            True if this process held it then. False if it did not, or the process does not end.
        """
        return any(held.startswith(f"{path}/") for held in self._held_at_end)

    def _require_runtime(self, call: str) -> ClientRuntime:
        """Return the runtime, started at the first use, or raise ClientClosedError."""
        if getpid() != process.pid:
            lifecycle.notice_fork()
        runtime = self._latest_runtime
        if runtime is None:
            with self._start_lock:
                if not self.closed:
                    runtime = self._latest_runtime or self._start_runtime()
        if runtime is None or runtime.closing or self.closed:
            if self._is_outlived():
                lifecycle.end_thread()
            raise ClientClosedError(call)
        return runtime

    def _is_outlived(self) -> bool:
        """Return whether a failed call does not return, because it is in a daemon thread and the process ends."""
        if not self.closed or not lifecycle.is_outlived():
            return False
        runtime = self._latest_runtime
        return runtime is None or (runtime.may_wait_here() and not runtime.dispatcher.is_current())

    def _start_runtime(self) -> ClientRuntime:
        """Start the runtime, and return it.

        A finalizer that the garbage collector runs in here may use the client, and so start another
        runtime, which is then used. A runtime whose start failed, or was interrupted, is closed,
        and the next use makes another.
        """
        gevent_check.check_patched()
        lifecycle.in_use()
        runtime = ClientRuntime(self.settings, self.hosts, self._access, self._on_state_change)
        if self._latest_runtime is None:
            try:
                self._latest_runtime = runtime
                runtime.start()
                for path, hook in self._close_hooks.items():
                    runtime.at_close(hook, path)
                if self._listeners:
                    runtime.dispatcher.prepare()
            except BaseException:
                self._latest_runtime = None
                runtime.close()
                raise
        return self._latest_runtime

    def _start_runtime_to_close(self) -> ClientRuntime | None:
        """Start the runtime for the close hooks of a client that was not used; None if that fails.

        Only other processes have used what this process made. At the end of a process Python 3.12
        starts no more threads.
        """
        with suppress(DistsyncError, OSError, RuntimeError):
            self._start_runtime().run(wait_until_connected(), 0.0)
        return self._runtime

    def _on_state_change(self, state: ConnectionState) -> None:
        runtime = self._runtime
        if state is ConnectionState.CONNECTED:
            self.outage_noticed_at = None
        for listener in tuple(self._listeners):
            if runtime is not None:
                runtime.dispatcher.call(partial(listener, state.value))

    def close(self) -> None:
        """Close the session; all held objects are lost.

        It takes less than 2 seconds, even without a server. It may be called anywhere, and more
        than once.

        Note:
            Waiting calls raise ClientClosedError. Held objects are lost, with the reason "client
            closed".

            At the end of the process, which closes all clients, calls in daemon threads do not
            return, and the release of what the process held does nothing more.

            If interrupted, the close is incomplete. The next close, or that at the end of the
            process, completes it.
        """
        me = threading.get_ident()
        lifecycle.notice_fork()
        with self._start_lock:
            runtime = self._runtime or (
                self._start_runtime_to_close() if self._close_hooks and not self.closed else None
            )
            self.closed = True
            if runtime is None or self._closing_thread not in (None, me):
                return
            self._closing_thread = me  # an interrupt in the next line allows another call by this thread
        try:
            if process.ended_by == me:
                self._held_at_end = self._held_at_end or tuple(held.path for held in runtime.holds.active())
            runtime.close()
            self._final_statistics, self._latest_runtime = runtime.zk_session.statistics(), None
        finally:
            self._closing_thread = None

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def after_fork_in_child(self) -> None:
        """Forget the session of the parent process, in a forked child."""
        self._close_hooks, self._held_at_end, self.outage_noticed_at = {}, (), None
        self._start_lock, self._closing_thread = threading.RLock(), None
        if self._latest_runtime is not None:
            self._latest_runtime.after_fork_in_child()
            self._latest_runtime = None


async def _sync(path: str) -> None:
    while True:
        try:
            await Connected()
            await Sync(path)
            return
        except (DisconnectedError, SessionLostError):
            continue
