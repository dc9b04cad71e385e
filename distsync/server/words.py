"""Four-letter words: the first four bytes of a connection may ask how the server is, instead of a handshake.

Rules for this file: pure; it makes text of figures. The layout is that of ZooKeeper 3.8, which monitoring parses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

VERSION = "3.8.0"
"""The ZooKeeper release whose protocol and behaviour this server has; clients choose their requests by it."""


class Link(NamedTuple):
    """One connection, as ``stat`` shows it."""

    host: str
    port: int
    received: int
    sent: int
    queued: int


class Figures(NamedTuple):
    """What the server tells about itself. ``Units``: bytes, milliseconds, items."""

    port: int
    data_dir: str
    zxid: int
    nodes: int
    watches: int
    ephemerals: int
    data_bytes: int
    sessions: int
    received: int
    sent: int
    uptime_ms: int
    tick_ms: int
    min_timeout_ms: int
    max_timeout_ms: int
    links: tuple[Link, ...]


def _srvr(figures: Figures) -> str:
    lines = {
        "Zookeeper version": f"{VERSION}-distsync",
        "Latency min/avg/max": "0/0.0/0",
        "Received": figures.received,
        "Sent": figures.sent,
        "Connections": len(figures.links),
        "Outstanding": sum(link.queued for link in figures.links),
        "Zxid": f"0x{figures.zxid:x}",
        "Mode": "standalone",
        "Node count": figures.nodes,
    }
    return "".join(f"{key}: {value}\n" for key, value in lines.items())


def _stat(figures: Figures) -> str:
    version, rest = _srvr(figures).split("\n", 1)
    links = "".join(
        f" /{link.host}:{link.port}[1](queued={link.queued},recved={link.received},sent={link.sent})\n"
        for link in figures.links
    )
    return f"{version}\nClients:\n{links}\n{rest}"


def _mntr(figures: Figures) -> str:
    lines = {
        "version": f"{VERSION}-distsync",
        "server_state": "standalone",
        "znode_count": figures.nodes,
        "watch_count": figures.watches,
        "ephemerals_count": figures.ephemerals,
        "approximate_data_size": figures.data_bytes,
        "global_sessions": figures.sessions,
        "num_alive_connections": len(figures.links),
        "outstanding_requests": sum(link.queued for link in figures.links),
        "packets_received": figures.received,
        "packets_sent": figures.sent,
        "uptime": figures.uptime_ms,
    }
    return "".join(f"zk_{key}\t{value}\n" for key, value in lines.items())


def _conf(figures: Figures) -> str:
    lines = {
        "clientPort": figures.port,
        "dataDir": figures.data_dir,
        "tickTime": figures.tick_ms,
        "minSessionTimeout": figures.min_timeout_ms,
        "maxSessionTimeout": figures.max_timeout_ms,
        "serverId": 0,
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


FIXED: dict[bytes, str] = {
    b"ruok": "imok",
    b"isro": "rw",
    b"envi": f"Environment:\nzookeeper.version={VERSION}-distsync\n",  # kazoo's server_version() reads it
}

TOLD: dict[bytes, Callable[[Figures], str]] = {
    b"srvr": _srvr,
    b"stat": _stat,
    b"mntr": _mntr,
    b"conf": _conf,
}


def answer_to(word: bytes, figures: Callable[[], Figures]) -> str | None:
    """None when it is no such word. ``figures`` is asked only for the words that tell figures."""
    tell = TOLD.get(word)
    return tell(figures()) if tell else FIXED.get(word)
