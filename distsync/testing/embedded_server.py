"""``EmbeddedServer``: distsync's own ZooKeeper server for tests, with fault injection.

The server is the one that users run, started by server_host.py. Clients connect through the proxy
of faulty_proxy.py, which injects the faults of connections.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from distsync._pickle import public_in
from distsync._server.options import Options, Tls
from distsync.errors import UsageError
from distsync.testing.connection_faults import FaultInjectable, end_session, say, session_id
from distsync.testing.faulty_proxy import Proxy
from distsync.testing.server_host import LOOPBACK, Host, ProcessHost, ThreadHost


@public_in("distsync.testing")
class Counts(NamedTuple):
    """What a server has at one moment.

    Attributes:
        sessions: Number of sessions.
        watches: Number of watches.
        nodes: Number of znodes, ``/`` and those under ``/zookeeper`` included.
        ephemerals: Number of ephemeral znodes.
    """

    sessions: int
    watches: int
    nodes: int
    ephemerals: int


_FIGURES = ("zk_global_sessions", "zk_watch_count", "zk_znode_count", "zk_ephemerals_count")


class EmbeddedServer(FaultInjectable):
    """A ZooKeeper server for one test, on a free port of loopback.

    Nothing runs until ``start()`` is called or the ``with`` block begins. At the end of the block,
    the server and everything that it created are removed.

    Clients connect to ``hosts``, which stays the same until the server is closed. The faults are
    injected there. ``address`` leads to the server itself, without faults.

    Args:
        data_dir: Folder of the server's data, which is kept. None creates a temporary folder, which
            ``close()`` removes.
        process: Whether the server runs in a process of its own, not in a thread. It then takes a
            second to start, not milliseconds, and can be killed.
        tls: Certificate files of a server that encrypts its connections. Its connections can be
            broken, but its requests, replies and sessions cannot be distinguished. None encrypts
            nothing.
        users: Passwords by user name, for clients with ``auth="sasl:user:password"``. None accepts
            no user.
        require_auth: Schemes of which each client must use one: ``"sasl"``, ``"x509"`` or both.
            Empty requires none.

    Example:
        >>> with EmbeddedServer() as server:                          # doctest: +SKIP
        ...     client = distsync.connect(server.hosts)
        ...     lock = Lock(name="report", client=client)
    """

    __module__ = "distsync.testing"

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        process: bool = False,
        tls: Tls | None = None,
        users: Mapping[str, str] | None = None,
        require_auth: Iterable[str] = (),
    ) -> None:
        self._data_dir = data_dir
        self._process = process
        self._options = Options(tls=tls, passwords=users, required_schemes=frozenset(require_auth))
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._host: Host | None = None
        self._running = False
        self._port: int | None = None
        self._proxy: Proxy | None = None

    # ---- address

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the server itself, without the faults of connections.

        Raises:
            UsageError: The server was not started.
        """
        if self._port is None:
            raise UsageError("the server was not started: use start() or a with block")
        return LOOPBACK, self._port

    # ---- start and stop

    def start(self) -> None:
        """Start the server, on the port and with the data of its last run if there was one.

        Raises:
            UsageError: The server is running.
            UnavailableError: The port or the folder is in use.
            ServerStartError: The server's process ended at once. Its log says why.
        """
        if self._running:
            raise UsageError("the server is running")
        host = self._host = self._host or self._new_host()
        self._port = host.start(self._port)
        self._running = True
        self._proxy = self._proxy or Proxy(f"{LOOPBACK}:{self._port}", sealed=self._options.tls is not None)

    def stop(self) -> None:
        """Shut the server down cleanly. Data, sessions and address are kept for the next start."""
        if self._running:
            self._running = False
            self._hosted.stop()

    def kill(self) -> None:
        """Kill the process of the server with SIGKILL. Data, sessions and address are kept.

        This does nothing if the server is not running.

        Raises:
            UsageError: The server runs in a thread.
        """
        if self._running:
            self._hosted.kill()
            self._running = False

    def restart(self, *, kill: bool = False) -> None:
        """Stop the server and start it again. Clients reconnect, and keep their sessions.

        Args:
            kill: Whether to kill the server, as ``kill()`` does, instead of shutting it down
                cleanly.

        Raises:
            UsageError: The server runs in a thread and ``kill`` is True.
            UnavailableError: The port or the folder is in use.
            ServerStartError: The server's process ended at once. Its log says why.
        """
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def pause(self) -> None:
        """Suspend the server until ``resume()``. Connections stay open, and no session expires.

        Raises:
            UsageError: The server was not started.
        """
        self._hosted.pause()

    def resume(self) -> None:
        """Let a paused server continue. It does nothing if the server is not paused.

        Raises:
            UsageError: The server was not started.
        """
        self._hosted.resume()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend the server during a ``with`` block.

        Yields:
            None: The server is suspended.

        Raises:
            UsageError: The server was not started.
        """
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def close(self) -> None:
        """Stop the server, and remove its threads, processes, sockets and temporary folder."""
        try:
            self.stop()
        finally:
            if self._proxy is not None:
                self._proxy.close()
            if self._temporary is not None:
                self._temporary.cleanup()
            self._proxy = self._temporary = self._host = self._port = None

    def __enter__(self) -> EmbeddedServer:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- faults

    def expire(self, session: object) -> None:
        """End a session, as if it had timed out. Its ephemeral znodes are deleted.

        The client learns of it when it reconnects.

        Args:
            session: A client of distsync or kazoo, or the id of a session that was made over
                ``hosts``.

        Raises:
            UsageError: The server was not started, the client has no session, the session was not
                made over ``hosts``, or connections are encrypted.
            OSError: The server is not running, or is paused.
        """
        end_session(self.address, [self._frames], session_id(session))

    def heal(self) -> None:
        """End all faults, pending ones too.

        A stopped server is started, and a paused one is resumed.
        """
        if not self._running:
            self.start()
        self.resume()
        self._faults.disarm()
        self._faults.heal()

    # ---- counts

    def counts(self) -> Counts:
        """Return how many sessions, watches and znodes the server has.

        Returns:
            The counts at the moment of the reply.

        Raises:
            UsageError: The server was not started, or was made with ``tls``.
            OSError: The server is not running, or is paused.
        """
        if self._options.tls is not None:
            raise UsageError("a server with tls= is not asked in the clear how much it has")
        figures = dict(line.split("\t", 1) for line in self._say(b"mntr").decode().splitlines() if "\t" in line)
        return Counts(*(int(figures[name]) for name in _FIGURES))

    @property
    def _hosted(self) -> Host:
        if self._host is None:
            raise UsageError("the server was not started: use start() or a with block")
        return self._host

    def _new_host(self) -> Host:
        if self._data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="distsync-")
        folder = Path(self._data_dir or self._temporary.name).absolute()  # type: ignore[union-attr]
        folder.mkdir(parents=True, exist_ok=True)
        return (ProcessHost if self._process else ThreadHost)(folder, self._options)

    def _say(self, sent: bytes) -> bytes:
        return say(self.address, sent)
