"""``EmbeddedServer``: a ZooKeeper server for tests, and the faults that tests ask for.

Rules for this file: a thin layer. The server is the one that users have, run by server_host.py; what happens to
connections, faulty_proxy.py does, which stands between the server and all who connect to ``hosts``.
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
    """What a server has at one moment. ``nodes`` has ``/`` and the nodes under ``/zookeeper`` too."""

    sessions: int
    watches: int
    nodes: int
    ephemerals: int


_FIGURES = ("zk_global_sessions", "zk_watch_count", "zk_znode_count", "zk_ephemerals_count")


class EmbeddedServer(FaultInjectable):
    """A ZooKeeper server of one's own, on a free port of loopback, gone with all it had when the block is over.

    >>> with EmbeddedServer() as server:                          # doctest: +SKIP
    ...     client = distsync.connect(server.hosts)
    ...     lock = Lock(name="report", client=client)

    Clients connect to ``hosts``, which stays the same as long as the object lives, and is where faults happen.
    ``address`` is the server's own, for whatever is to be spared from them.
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
        """Nothing runs yet: `start` starts it, or the ``with`` block.

        ``data_dir`` is kept; None: a temporary folder, removed by `close`. ``process``: the server is a process, not
        a thread; it starts in a second instead of some milliseconds, and can be killed.

        ``tls``: its files; connections can then be broken, but no request, reply or session be told from another.
        ``users``: their passwords, for ``auth="sasl:user:password"``. ``require_auth``: of "sasl" and "x509".
        """
        self._data_dir = data_dir
        self._process = process
        self._options = Options(tls=tls, passwords=users, required_schemes=frozenset(require_auth))
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._host: Host | None = None
        self._running = False
        self._port: int | None = None
        self._proxy: Proxy | None = None

    # ---- where it is

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the server itself, past the faults of connections."""
        if self._port is None:
            raise UsageError("the server was not started: use start() or a with block")
        return LOOPBACK, self._port

    # ---- its life

    def start(self) -> None:
        """The server serves, on the port and with the data of last time if there was one.

        Raises: UsageError (it runs), ServerStartError, ServeError (the port or the folder is in use)."""
        if self._running:
            raise UsageError("the server is running")
        host = self._host = self._host or self._new_host()
        self._port = host.start(self._port)
        self._running = True
        self._proxy = self._proxy or Proxy(f"{LOOPBACK}:{self._port}", sealed=self._options.tls is not None)

    def stop(self) -> None:
        """The server has ended in good order; data, sessions and address are kept for the next `start`."""
        if self._running:
            self._running = False
            self._hosted.stop()

    def kill(self) -> None:
        """The process of the server is dead, as by SIGKILL; data, sessions and address are kept.

        Raises: UsageError for a server in a thread."""
        if self._running:
            self._hosted.kill()
            self._running = False

    def restart(self, *, kill: bool = False) -> None:
        """The server has ended, or was killed, and serves again; clients connect again, in the sessions they had."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def pause(self) -> None:
        """The server does nothing until `resume`; connections stay, and no session expires meanwhile."""
        self._hosted.pause()

    def resume(self) -> None:
        """The server goes on."""
        self._hosted.resume()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The server does nothing while the block runs."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def close(self) -> None:
        """Nothing of the server remains: no thread, process or socket, and no temporary folder."""
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

    # ---- what can go wrong

    def expire(self, session: object) -> None:
        """The session is over, and its ephemeral nodes are gone; its client learns of it when it connects again.

        ``session``: a distsync client, a kazoo client, or the id of a session that came through ``hosts``."""
        end_session(self.address, [self._frames], session_id(session))

    def heal(self) -> None:
        """No fault is there, and none to come: the server runs and is not paused, connections are welcome."""
        if not self._running:
            self.start()
        self.resume()
        self._faults.disarm()
        self._faults.heal()

    # ---- what it has

    def counts(self) -> Counts:
        """How many sessions, watches and nodes there are. Raises: OSError when the server does not run; UsageError with
        ``tls``."""
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
