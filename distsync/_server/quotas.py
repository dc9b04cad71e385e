"""Quotas of subtrees, in ZooKeeper's layout.

The quota of /a has two nodes below /zookeeper/quota/a: ``zookeeper_limits`` with the limits, and
``zookeeper_stats`` with the usage, which the server updates. Both contain text such as
``count=4,bytes=19``, or with hard limits ``count=-1,bytes=-1=;byteHardLimit=100``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LIMITS, STATS = "zookeeper_limits", "zookeeper_stats"
QUOTA = "/zookeeper/quota"

_SEPARATORS = re.compile("[,;]+")


def limits_path(prefix: str) -> str:
    return f"{QUOTA}{prefix}/{LIMITS}"


def stats_path(prefix: str) -> str:
    return f"{QUOTA}{prefix}/{STATS}"


def is_limits(path: str) -> bool:
    """Whether ``path`` is the limits node of some path."""
    return path.endswith(LIMITS) and path == limits_path(target_of(path))


def target_of(path: str) -> str:
    """Return the path whose quota the node belongs to; "" if none. The root cannot have a quota."""
    return path[len(QUOTA) : path.rfind("/")] if path.startswith(QUOTA + "/") else ""


def prefix_of(path: str, limited: set[str]) -> str:
    """Return the path in ``limited`` that is nearest at or above ``path``, or ""."""
    while path and path not in limited:
        path = path[: path.rfind("/")]
    return path


def stats_data(count: int, size: int) -> bytes:
    """Return the content of a stats node for ``count`` nodes with ``size`` bytes of data."""
    return _write({"count": count, "bytes": size})


def apply_delta(stats: bytes | None, count: int, size: int) -> bytes:
    """Return the content of a stats node after adding ``count`` nodes and ``size`` bytes (may be negative)."""
    track = _read(stats)
    track["count"] = track.get("count", -1) + count
    track["bytes"] = track.get("bytes", -1) + size
    return _write(track)


def violations(limits: bytes | None, stats: bytes | None, count: int, size: int) -> Iterator[tuple[str, bool]]:
    """Yield each limit that adding ``count`` nodes and ``size`` bytes would exceed, and whether it is hard.

    The text is ZooKeeper's. A soft limit is ignored if there is a hard one.
    """
    limit, now = _read(limits), _read(stats)
    for name, title, more in (("count", "Count", count), ("bytes", "Byte", size)):
        hard = limit.get(f"{title.lower()}HardLimit", -1)
        maximum = hard if hard > -1 else limit.get(name, -1)
        found = now.get(name, -1) + more
        if more != 0 and -1 < maximum < found:
            yield f"current {name}={found}, {'hard' if hard > -1 else 'soft'}{title}Limit={maximum}", hard > -1


def _read(text: bytes | None) -> dict[str, int]:
    """Parse the content of a limits or stats node, skipping invalid pairs."""
    track = {}
    for pair in _SEPARATORS.split((text or b"").decode(errors="replace")):
        key, _, value = pair.partition("=")
        if re.fullmatch(r"-?\d{1,18}=*", value, re.ASCII):
            track[key] = int(value.rstrip("="))
    return track


def _write(track: dict[str, int]) -> bytes:
    """Format as ZooKeeper does, with the "=" at which its older parsers stop."""
    count, size = track.pop("count", -1), track.pop("bytes", -1)
    others = "".join(f";{key}={track[key]}" for key in sorted(track))
    return f"count={count},bytes={size}{'=' if others else ''}{others}".encode()
