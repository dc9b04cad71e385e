"""``Ensemble``: a real ZooKeeper ensemble for tests, with observers, and the faults that tests ask for.

Rules for this file: what the servers are together: who knows whom by which wire, who leads, who is apart from whom.
One server is ensemble_server.py; the wires between them, ensemble_network.py; their processes, java_process.py.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType

from distsync._client.clocks import wait_clock
from distsync._client.ensemble_status import Role, Server
from distsync.errors import UsageError
from distsync.testing import java_process
from distsync.testing.connection_faults import end_session, session_id
from distsync.testing.ensemble_network import EnsembleNetwork, Pair
from distsync.testing.ensemble_server import SERVING, START_S, EnsembleServer
from distsync.testing.faulty_proxy import ProxyMode
from distsync.testing.java_process import LOOPBACK, EnsembleError, ProcessGuard

TICK_MS = 250
MAX_SESSION_MS = 120_000
"""Whoever asks for more gets this; the least is 2 ticks."""

QUORUM_S = 60.0


class Ensemble:
    """ZooKeeper servers of one's own on loopback, gone with all they had when the block is over.

    >>> with Ensemble(participants=3, observers=2) as ensemble:          # doctest: +SKIP
    ...     client = distsync.connect(ensemble.hosts)
    ...     ensemble.leader().kill()
    ...     ensemble.wait_for_leader()

    Clients connect to ``hosts``, which stays the same as long as the object lives, and is where faults of their
    connections happen; faults between servers happen on the wires between them (`partition`).
    """

    __module__ = "distsync.testing"

    def __init__(
        self,
        participants: int = 3,
        observers: int = 2,
        *,
        tick_ms: int = TICK_MS,
        data_dir: str | Path | None = None,
        settings: Mapping[str, object] | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """Nothing runs yet: `start` starts it, or the ``with`` block.

        ``tick_ms``: ZooKeeper's tickTime; a follower that is silent for 10 ticks is left behind. ``data_dir`` is kept;
        None: a temporary folder, removed by `close`. ``settings`` are further lines of zoo.cfg, ``properties`` of Java.
        """
        if participants < 1 or observers < 0:
            raise UsageError("an ensemble has one participant or more, and observers or none")
        self._tick_ms, self._data_dir = tick_ms, data_dir
        self._votes, self._count = participants, participants + observers
        self._settings, self._properties = dict(settings or {}), dict(properties or {})
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._guardian: ProcessGuard | None = None
        self._wires: EnsembleNetwork | None = None
        self._servers: tuple[EnsembleServer, ...] = ()
        self._ports: dict[tuple[int, int], Pair] = {}

    # ---- where it is

    @property
    def servers(self) -> tuple[EnsembleServer, ...]:
        """All of them: first the participants, then the observers."""
        if not self._servers:
            raise UsageError("the ensemble was not started: use start() or a with block")
        return self._servers

    @property
    def participants(self) -> tuple[EnsembleServer, ...]:
        """Those that vote."""
        return self.servers[: self._votes]

    @property
    def observers(self) -> tuple[EnsembleServer, ...]:
        """Those that do not vote."""
        return self.servers[self._votes :]

    @property
    def hosts(self) -> str:
        """What clients connect to: all servers, with a comma between."""
        return ",".join(server.hosts for server in self.servers)

    # ---- its life

    def start(self) -> None:
        """All servers that did not run have started, and all serve.

        Raises: EnsembleError: without Java, without ZooKeeper, or with what the log of a server says."""
        if not self._servers:
            self._prepare()
        for server in self.servers:
            if server.pid is None:
                server.launch()
        self.wait_until_serving()

    def stop(self) -> None:
        """All servers have ended in good order; data, sessions and addresses are kept for the next `start`."""
        for server in self.servers:
            server.stop()

    def kill(self) -> None:
        """All servers are dead, as by SIGKILL; data, sessions and addresses are kept."""
        for server in self.servers:
            server.kill()

    def rolling_restart(self, *, kill: bool = False) -> None:
        """Each server has ended, or was killed, and serves again: one after the other, the leader at the end."""
        first = self.leader()
        for server in sorted(self.servers, key=lambda each: each is first):
            server.restart(kill=kill)
            self.wait_until_serving()

    def close(self) -> None:
        """Nothing of the ensemble remains: no process, thread or socket, and no temporary folder."""
        for server in self._servers:
            server.close()
        if self._wires is not None:
            self._wires.close()
        if self._guardian is not None:
            self._guardian.close()
        if self._temporary is not None:
            self._temporary.cleanup()
        self._servers, self._wires, self._guardian, self._temporary = (), None, None, None

    def __enter__(self) -> Ensemble:
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

    # ---- who is who

    def leader(self) -> EnsembleServer | None:
        """Who leads, as it says itself; None while nobody does. Of two, one of whom is cut off, the one with the higher
        epoch."""
        leading = [
            (status.epoch or 0, server.number)
            for server, status in zip(self.servers, self.status(), strict=True)
            if status.role in (Role.LEADER, Role.STANDALONE)
        ]
        return self.servers[max(leading)[1] - 1] if leading else None

    def followers(self) -> list[EnsembleServer]:
        """Who follows at the moment."""
        return [
            server for server, status in zip(self.servers, self.status(), strict=True) if status.role is Role.FOLLOWER
        ]

    def status(self) -> list[Server]:
        """What each server says of itself: role, zxid, epoch and counter."""
        return [server.status() for server in self.servers]

    def wait_for_leader(self, timeout: float = QUORUM_S) -> EnsembleServer:
        """Who leads, as soon as somebody does. Raises: EnsembleError when nobody does in time."""
        until = wait_clock() + timeout
        while True:
            leader = self.leader()
            if leader is not None:
                return leader
            if wait_clock() > until:
                raise EnsembleError("no server leads", self.servers[0].log)

    def wait_until_serving(self, *servers: EnsembleServer, timeout: float = START_S) -> None:
        """These servers (none: all that run) serve clients. Raises: EnsembleError when they do not in time."""
        for server in servers or [each for each in self.servers if each.running]:
            server.wait_until(lambda status: status.role in SERVING, timeout)

    # ---- what can go wrong

    def partition(self, *groups: Iterable[EnsembleServer], silent: bool = True) -> None:
        """Servers of different groups do not hear each other, until `heal`; who is in no group is alone.

        ``silent``: nothing gets through, and nobody is told; else connections break and are refused."""
        group_of = {server.number: which for which, group in enumerate(groups) for server in group}
        mode = ProxyMode.HELD if silent else ProxyMode.REFUSED

        def mode_of(caller: int, called: int) -> ProxyMode:
            ours, theirs = group_of.get(caller, -caller), group_of.get(called, -called)
            return ProxyMode.PASSED if ours == theirs else mode

        self._laid.set(mode_of)

    def isolate(self, server: EnsembleServer, *, silent: bool = True) -> None:
        """This server and the others do not hear each other, until `heal`; clients reach it."""
        self.partition([each for each in self.servers if each is not server], silent=silent)

    def expire(self, session: object) -> None:
        """The session is over, and its ephemeral nodes are gone; its client learns of it when it connects again.

        ``session``: a distsync client, a kazoo client, or the id of a session that came through ``hosts``."""
        leader = self.wait_for_leader()
        end_session(leader.address, [server._faults for server in self.servers], session_id(session))

    def heal(self) -> None:
        """No fault is there, and none to come: all servers run, hear each other and serve, connections are welcome."""
        self._laid.set(lambda caller, called: ProxyMode.PASSED)
        for server in self.servers:
            server.heal()
        self.wait_until_serving()

    # ---- before the first start

    @property
    def _laid(self) -> EnsembleNetwork:
        if self._wires is None:
            raise UsageError("the ensemble was not started: use start() or a with block")
        return self._wires

    def _prepare(self) -> None:
        lacking = java_process.missing()
        if lacking:
            raise EnsembleError(lacking, "none yet")
        if self._data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="distsync-")
        folder = Path(self._data_dir or self._temporary.name).absolute()  # type: ignore[union-attr]
        guardian = self._guardian = ProcessGuard(None if self._data_dir else folder)
        numbers = range(1, self._count + 1)
        self._servers = tuple(
            EnsembleServer(number, number > self._votes, folder / f"server-{number}", guardian) for number in numbers
        )
        self._lay_wires()
        for server in self._servers:
            server.prepare(self._lines(server), self._properties)

    def _lay_wires(self) -> None:
        wires = self._wires = EnsembleNetwork()
        for caller in self._servers:
            for called in self._servers:
                if caller is not called:
                    ends, back = (caller.number, called.number), (called.number, caller.number)
                    self._ports[ends] = wires.lay(
                        ends, called.quorum_port, called.election_port, partial(self._election_port, back)
                    )

    def _election_port(self, ends: tuple[int, int]) -> int:
        return self._ports[ends].election

    def _lines(self, server: EnsembleServer) -> dict[str, object]:
        """Of the zoo.cfg of this server."""
        lines: dict[str, object] = {
            "tickTime": self._tick_ms,
            "initLimit": 40,
            "syncLimit": 10,
            "maxSessionTimeout": MAX_SESSION_MS,
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "*",
        }
        if self._count > 1:
            lines["standaloneEnabled"] = "false"
            lines.update((f"server.{each.number}", self._known_as(server, each)) for each in self._servers)
        if server.observes:
            lines["peerType"] = "observer"
        return {**lines, **self._settings}

    def _known_as(self, server: EnsembleServer, other: EnsembleServer) -> str:
        """How ``server`` reaches ``other``: by its wire; itself where it listens."""
        ports = self._ports.get((server.number, other.number), (other.quorum_port, other.election_port))
        return f"{LOOPBACK}:{ports[0]}:{ports[1]}:{'observer' if other.observes else 'participant'}"
