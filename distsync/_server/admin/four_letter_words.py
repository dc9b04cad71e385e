"""Four-letter words: monitoring commands that a client sends instead of a handshake.

The output has the layout of ZooKeeper 3.8, which monitoring tools parse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

VERSION = "3.8.0"
"""ZooKeeper release whose protocol and behaviour this server has. Clients choose their requests by it."""


class ConnectionRow(NamedTuple):
    """One connection. ``session_id`` is 0 if it has none, and ``last_op`` is NA before the first request."""

    host: str
    port: int
    received: int
    sent: int
    queued: int
    session_id: int = 0
    since_ms: int = 0
    timeout_ms: int = 0
    last_op: str = "NA"
    last_xid: int = 0
    last_zxid: int = 0


class Metrics(NamedTuple):
    """Statistics of the server. Times are in ms and sizes in bytes."""

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
    latency: tuple[float, float, float]
    uptime_ms: int
    tick_ms: int
    min_timeout_ms: int
    max_timeout_ms: int
    jute_maxbuffer: int
    descriptors: tuple[int, int]
    connections: tuple[ConnectionRow, ...]
    environment: Mapping[str, str]


class DetailLists(NamedTuple):
    """Lists of sessions, ephemeral nodes, watches and connections.

    Attributes:
        expiries: Expiry dates, in seconds, with their session ids; a date may be there more than once.
        ephemerals: Paths by session id.
        watches: Path and session id of each data watch.
        connections: The connections.
    """

    expiries: Sequence[tuple[str, list[int]]]
    ephemerals: Mapping[int, list[str]]
    watches: list[tuple[str, int]]
    connections: tuple[ConnectionRow, ...]


def _latency(metrics: Metrics) -> str:
    shortest, average, longest = metrics.latency
    return f"{shortest:.0f}/{average:.4f}/{longest:.0f}"


def _srvr(metrics: Metrics) -> str:
    lines = {
        "Zookeeper version": f"{VERSION}-distsync",
        "Latency min/avg/max": _latency(metrics),
        "Received": metrics.received,
        "Sent": metrics.sent,
        "Connections": len(metrics.connections),
        "Outstanding": sum(row.queued for row in metrics.connections),
        "Zxid": f"0x{metrics.zxid:x}",
        "Mode": "standalone",
        "Node count": metrics.nodes,
    }
    return "".join(f"{key}: {value}\n" for key, value in lines.items())


def _row_head(row: ConnectionRow) -> str:
    counts = f"queued={row.queued},recved={row.received},sent={row.sent}"
    return f" /{row.host}:{row.port}[{1 if row.session_id else 0}]({counts}"


def _stat(metrics: Metrics) -> str:
    version, rest = _srvr(metrics).split("\n", 1)
    rows = "".join(f"{_row_head(row)})\n" for row in metrics.connections)
    return f"{version}\nClients:\n{rows}\n{rest}"


def _cons(metrics: Metrics) -> str:
    return "".join(map(_connection, metrics.connections)) + "\n"


def _connection(row: ConnectionRow) -> str:
    more = {
        "sid": f"0x{row.session_id & (1 << 64) - 1:x}",
        "lop": row.last_op,
        "est": row.since_ms,
        "to": row.timeout_ms,
        "lcxid": f"0x{row.last_xid & 0xFFFFFFFF:x}",
        "lzxid": f"0x{row.last_zxid & (1 << 64) - 1:x}",
    }
    details = "".join(f",{key}={value}" for key, value in more.items()) if row.session_id else ""
    return f"{_row_head(row)}{details})\n"


def _mntr(metrics: Metrics) -> str:
    shortest, average, longest = metrics.latency
    lines = {
        "version": f"{VERSION}-distsync",
        "server_state": "standalone",
        "min_latency": f"{shortest:.0f}",
        "avg_latency": f"{average:.4f}",
        "max_latency": f"{longest:.0f}",
        "znode_count": metrics.nodes,
        "watch_count": metrics.watches,
        "ephemerals_count": metrics.ephemerals,
        "approximate_data_size": metrics.data_bytes,
        "global_sessions": metrics.sessions,
        "num_alive_connections": len(metrics.connections),
        "outstanding_requests": sum(row.queued for row in metrics.connections),
        "packets_received": metrics.received,
        "packets_sent": metrics.sent,
        "open_file_descriptor_count": metrics.descriptors[0],
        "max_file_descriptor_count": metrics.descriptors[1],
        "uptime": metrics.uptime_ms,
    }
    return "".join(f"zk_{key}\t{value}\n" for key, value in lines.items())


def _conf(metrics: Metrics) -> str:
    lines = {
        "clientPort": metrics.port,
        "dataDir": metrics.data_dir,
        "dataLogDir": metrics.data_dir,
        "tickTime": metrics.tick_ms,
        "maxClientCnxns": 0,
        "minSessionTimeout": metrics.min_timeout_ms,
        "maxSessionTimeout": metrics.max_timeout_ms,
        "juteMaxBuffer": metrics.jute_maxbuffer,
        "serverId": 0,
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def _envi(metrics: Metrics) -> str:
    """kazoo's server_version() reads the version here."""
    lines = {"zookeeper.version": f"{VERSION}-distsync", **metrics.environment}
    return "Environment:\n" + "".join(f"{key}={value}\n" for key, value in lines.items())


def _dump(lists: DetailLists) -> str:
    expiries, owned = lists.expiries, lists.ephemerals
    lines = ["SessionTracker dump:", f"Session Sets ({len(expiries)})/({sum(len(ids) for _, ids in expiries)}):"]
    for date, ids in expiries:
        lines += [f"{len(ids)} expire at {date}:", *(f"\t0x{id:x}" for id in ids)]
    lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(owned)}):"]
    for id, paths in owned.items():
        lines += [f"0x{id:x}:", *(f"\t{path}" for path in paths)]
    lines += [
        "Connections dump:",
        f"Connections Sets (1)/({len(lists.connections)}):",
        f"{len(lists.connections)} do not expire:",
    ]
    lines += [f"\tip: /{row.host}:{row.port} sessionId: 0x{row.session_id:x}" for row in lists.connections]
    return "\n".join(lines) + "\n"


def _wchs(lists: DetailLists) -> str:
    paths, watchers = ({watch[side] for watch in lists.watches} for side in (0, 1))
    return f"{len(watchers)} connections watching {len(paths)} paths\nTotal watches:{len(lists.watches)}\n"


def _wchc(lists: DetailLists) -> str:
    return _grouped((f"0x{id:x}", path) for path, id in lists.watches)


def _wchp(lists: DetailLists) -> str:
    return _grouped((path, f"0x{id:x}") for path, id in lists.watches)


def _grouped(pairs: Iterable[tuple[str, str]]) -> str:
    groups: dict[str, list[str]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return "".join("\n\t".join([key, *values]) + "\n" for key, values in groups.items()) + "\n"


_FIXED: dict[str, str] = {
    "ruok": "imok",
    "isro": "rw",
    "crst": "Connection stats reset.\n",
    "srst": "Server stats reset.\n",
}

_FROM_METRICS: dict[str, Callable[[Metrics], str]] = {
    "srvr": _srvr,
    "stat": _stat,
    "mntr": _mntr,
    "conf": _conf,
    "cons": _cons,
    "envi": _envi,
}

_FROM_LISTS: dict[str, Callable[[DetailLists], str]] = {"dump": _dump, "wchs": _wchs, "wchc": _wchc, "wchp": _wchp}

ALL = frozenset(_FIXED) | frozenset(_FROM_METRICS) | frozenset(_FROM_LISTS)

CHANGING = frozenset({"crst", "srst"})
"""Words that reset counters."""


def answer_to(word: str, metrics: Callable[[], Metrics], lists: Callable[[], DetailLists]) -> str:
    """Return the answer to a word of ALL. ``metrics`` and ``lists`` are called only if needed."""
    if word in _FROM_METRICS:
        return _FROM_METRICS[word](metrics())
    return _FROM_LISTS[word](lists()) if word in _FROM_LISTS else _FIXED[word]
