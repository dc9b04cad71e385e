"""Many watches, many nodes, many operations for one server: the same for the quick tests and for bench/scale.py."""

from __future__ import annotations

import itertools
import resource
import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from distsync._wire import records as r
from distsync._wire.codes import EVENT_XID, PING_XID, ErrorCode
from distsync._wire.message_codec import decode_event, encode_request
from helpers.frame_client import Link, linked
from helpers.servers import ServerProcess

CHUNK, WINDOW = 500, 2_000
CHILDREN = 1_000
PAGE_BYTES = resource.getpagesize()
ERR = struct.Struct(">i")
EVENT = EVENT_XID.to_bytes(4, "big", signed=True)
HELLO = r.ConnectRequest(timeout_ms=60_000)


def resident_bytes(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


@contextmanager
def many_files() -> Iterator[int]:
    """Raise the limit of open files to the system's maximum; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def pour(link: Link, requests: Iterable[r.Request]) -> int:
    """All are answered without an error, many being on their way at a time; how many there were."""
    source, total, waiting = iter(requests), 0, 0
    while chunk := [encode_request(1, request) for request in itertools.islice(source, CHUNK)]:
        link.send(*chunk)
        total, waiting = total + len(chunk), waiting + len(chunk)
        while waiting >= WINDOW:
            waiting -= answered(link)
    while waiting:
        waiting -= answered(link)
    return total


def answered(link: Link) -> int:
    """1 for a reply, 0 for an event."""
    frame = link.frame()
    if frame[:4] == EVENT:
        return 0
    (err,) = ERR.unpack_from(frame, 12)
    assert err == 0, ErrorCode(err).name
    return 1


# ---- watches


class Crowd:
    """``clients``, each of which watches the data of ``each`` of the nodes, evenly distributed."""

    def __init__(self, port: int, clients: int, each: int, nodes: int) -> None:
        self.clients, self.each, self.nodes = clients, each, nodes
        self._stack = ExitStack()
        self.links = [self._stack.enter_context(linked(port, greeted=False)) for _ in range(clients + 1)]
        for link in self.links:
            link.greet(HELLO)
        self._writer = self.links.pop()

    def arm(self) -> None:
        """All the watches are there."""
        pour(self._writer, [r.CreateRequest("/crowd"), *map(r.CreateRequest, map(self.path, range(self.nodes)))])
        for who, link in enumerate(self.links):
            pour(link, [r.GetDataRequest(self.path(number), True) for number in self.watched(who)])

    @staticmethod
    def path(number: int) -> str:
        return f"/crowd/{number}"

    def watched(self, who: int) -> list[int]:
        """Another part for each client."""
        return [(who * 7 + at) % self.nodes for at in range(self.each)]

    def watchers(self, number: int) -> list[int]:
        return [who for who in range(self.clients) if number in self.watched(who)]

    def told(self, number: int) -> list[int]:
        """Return the clients that get an event for one write to this node, before the reply to a later
        ping.
        """
        pour(self._writer, [r.SetDataRequest(self.path(number), b"new", -1)])
        for link in self.links:
            link.send(encode_request(PING_XID, r.PingRequest()))
        return [who for who, link in enumerate(self.links) for path in events(link) if path == self.path(number)]

    def close(self) -> None:
        """All sessions are over."""
        for link in (*self.links, self._writer):
            pour(link, [r.CloseSessionRequest()])
        self._stack.close()


def events(link: Link) -> Iterator[str]:
    """The paths of all events before the pong."""
    while (frame := link.frame())[:4] == EVENT:
        yield decode_event(frame)[1].path


# ---- nodes


def grow(server: ServerProcess, nodes: int, data: bytes) -> float:
    """Create more nodes; return the bytes of memory that each takes in addition to its data, its path
    included.
    """
    with linked(server.port) as link:
        before = resident_bytes(server.pid)
        pour(link, (r.CreateRequest(f"/top-{number}") for number in range(nodes // CHILDREN)))
        inner = nodes - nodes // CHILDREN
        pour(link, (r.CreateRequest(f"/top-{at % (nodes // CHILDREN)}/node-{at:07d}", data) for at in range(inner)))
    return (resident_bytes(server.pid) - before - inner * len(data)) / nodes


# ---- operations


def churn(round: int) -> list[r.Request]:
    """Requests of all kinds that leave nothing behind; those of another round have other paths."""
    path = f"/churn-{round}"
    return [
        r.CreateRequest(path, b"data"),
        r.ExistsRequest(path, True),
        r.CreateRequest(f"{path}/child", b"x" * 50, flags=1),
        r.GetChildrenRequest(path, True),
        r.SetDataRequest(path, b"other data", -1),
        r.GetDataRequest(path, True),
        r.MultiRequest((r.CheckVersionRequest(path, 1), r.SetDataRequest(path, b"y", 1), r.CreateRequest(f"{path}/b"))),
        r.SetAclRequest(path, r.OPEN_ACL, -1),
        r.GetAclRequest(path),
        r.DeleteRequest(f"{path}/b", -1),
        r.DeleteRequest(f"{path}/child", -1),
        r.DeleteRequest(path, -1),
    ]


def busy(server: ServerProcess, operations: int, first: int = 0) -> int:
    """So many operations, at least, in sessions that come and go; how many they were."""
    done = 0
    while done < operations:
        with linked(server.port) as link:
            rounds = range(first + done, first + done + min(operations - done, 50_000), 12)
            done += pour(link, itertools.chain.from_iterable(map(churn, rounds)))
    return done
