"""The status of the servers of an ensemble, by the four-letter word ``srvr``.

ZooKeeper answers ``srvr`` unless its whitelist was changed: it is the one word that is allowed by
default. The answer is not trusted.
"""

from __future__ import annotations

import enum
import queue
import re
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from kazoo.hosts import collect_hosts

from distsync._client.clocks import wait_clock
from distsync._client.settings import Settings
from distsync._client.tls import context_of
from distsync._pickle import public_in

WORD = b"srvr"
MAX_BYTES = 65_536
MAX_THREADS = 16
READ_ONLY = "it has lost its quorum and is read-only: distsync waits for the quorum"


class Role(str, enum.Enum):
    """The role of a server in its ensemble.

    Attributes:
        LEADER: It orders all writes.
        FOLLOWER: It votes on writes.
        OBSERVER: It learns of writes, without a vote.
        STANDALONE: It is a single server without an ensemble.
        EMBEDDED: It is distsync's own server.
        UNKNOWN: It is reachable, but does not give its role.
        UNREACHABLE: It does not answer.
    """

    __module__ = "distsync"

    LEADER = "leader"
    FOLLOWER = "follower"
    OBSERVER = "observer"
    STANDALONE = "standalone"
    EMBEDDED = "embedded"
    """distsync's own."""
    UNKNOWN = "unknown"
    """there, but does not say."""
    UNREACHABLE = "unreachable"


@public_in("distsync")
@dataclass(frozen=True)
class Server:
    """The status of a server, as it reports it.

    A server whose zxid is behind the leader's lags behind.

    Attributes:
        host: Host of the server.
        port: Port of the server.
        role: The server's role.
        zxid: Id of the last transaction that it knows; None if it does not report it.
        version: Version of the server; empty if it does not report it.
        problem: A problem of the server, and what to do about it; empty if there is none.
    """

    host: str
    port: int
    role: Role
    zxid: int | None = None
    version: str = ""
    problem: str = ""

    @property
    def epoch(self) -> int | None:
        """Zab's epoch of the last transaction: the number of its leader's term; None if unknown."""
        return None if self.zxid is None else self.zxid >> 32

    @property
    def counter(self) -> int | None:
        """Zab's counter of the last transaction within its epoch; None if unknown."""
        return None if self.zxid is None else self.zxid & 0xFFFFFFFF


def ask_all(hosts: str, settings: Settings, timeout: float) -> list[Server]:
    """Return the status of each of ``hosts``, in their order, after at most ``timeout`` seconds."""
    where, _ = collect_hosts(hosts)
    addresses: Sequence[tuple[str, int]] = [(host, int(port)) for host, port in where]
    context = _context(settings)
    servers: dict[tuple[str, int], Server] = {}
    remaining: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
    for address in addresses:
        remaining.put(address)

    def work() -> None:
        with suppress(queue.Empty):
            while True:
                host, port = remaining.get_nowait()
                servers[host, port] = ask(host, port, context, timeout)

    # No ThreadPoolExecutor: the import of its module registers hooks for forks, of which a fork that waits for the
    # import would run only the second half.
    threads = [threading.Thread(target=work, name="distsync-ensemble") for _ in addresses[:MAX_THREADS]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [servers[address] for address in addresses]


def ask(host: str, port: int, context: ssl.SSLContext | None, timeout: float) -> Server:
    """Return the status of one server."""
    try:
        return read(host, port, _answer(host, port, context, timeout))
    except (OSError, UnicodeError) as error:
        return Server(host, port, Role.UNREACHABLE, problem=f"it does not answer: {error}")


def _answer(host: str, port: int, context: ssl.SSLContext | None, timeout: float) -> str:
    until = wait_clock() + timeout
    with socket.create_connection((host, port), timeout) as plain:
        connection = context.wrap_socket(plain, server_hostname=host) if context else plain
        with connection:
            connection.sendall(WORD)
            reply = b""
            while len(reply) < MAX_BYTES:
                connection.settimeout(max(0.001, until - wait_clock()))
                chunk = connection.recv(MAX_BYTES)
                if not chunk:
                    break
                reply += chunk
    return reply.decode("utf-8", "replace")


def read(host: str, port: int, text: str) -> Server:
    """Return the status that the reply to ``srvr`` contains."""
    report = dict(re.findall(r"^([\w ]+): (.*)$", text, re.MULTILINE))
    version, zxid = report.get("Zookeeper version", ""), re.fullmatch(r"0x([0-9a-f]{1,16})", report.get("Zxid", ""))
    if not zxid:
        return Server(host, port, Role.UNKNOWN, problem=_problem(text))
    roles = {role.value: role for role in Role}
    role = Role.EMBEDDED if "-distsync" in version else roles.get(report.get("Mode", ""), Role.UNKNOWN)
    problem = READ_ONLY if report.get("Mode") == "read-only" else ""
    return Server(host, port, role, int(zxid[1], 16), version.partition(",")[0], problem)


def _problem(text: str) -> str:
    if "whitelist" in text:
        return "srvr is not allowed: set 4lw.commands.whitelist=srvr in its zoo.cfg, and restart it"
    if "not currently serving" in text:
        return "it is not serving requests: it has lost its quorum, or is starting"
    return (
        f"it answered srvr with {text[:100]!r}: is it a ZooKeeper server?"
        if text
        else "it closed the connection at srvr"
    )


def _context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context that the session uses, too."""
    if not settings.tls:
        return None
    own = settings.tls_cert, settings.tls_key, settings.tls_key_password
    return context_of(settings.tls_ca, *own, settings.tls_verify)
