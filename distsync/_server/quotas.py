"""Quotas: which subtrees have one, what they may hold, what they hold.

Rules for this file: paths and the contents of two nodes, no tree. The quota of /a stands in two nodes below
/zookeeper/quota/a: what it may hold in ``zookeeper_limits``, what it holds in ``zookeeper_stats``, which the server
keeps. Both hold text: ``count=4,bytes=19``, and with hard limits ``count=-1,bytes=-1=;byteHardLimit=100``.
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
    """Whether it says what may be held of some path, and does not only end like one that does."""
    return path.endswith(LIMITS) and path == limits_path(target_of(path))


def target_of(path: str) -> str:
    """The path whose quota this node is about; "" when it is about none, nor may the root have one."""
    return path[len(QUOTA) : path.rfind("/")] if path.startswith(QUOTA + "/") else ""


def prefix_of(path: str, limited: set[str]) -> str:
    """The lowest node of ``limited`` at or above the path, or ""."""
    while path and path not in limited:
        path = path[: path.rfind("/")]
    return path


def stats_data(count: int, size: int) -> bytes:
    """What a stats node says of so many nodes with so many bytes of data."""
    return _write({"count": count, "bytes": size})


def apply_delta(stats: bytes | None, count: int, size: int) -> bytes:
    """The stats node after so many nodes and bytes have come (or gone, below zero)."""
    track = _read(stats)
    track["count"] = track.get("count", -1) + count
    track["bytes"] = track.get("bytes", -1) + size
    return _write(track)


def violations(limits: bytes | None, stats: bytes | None, count: int, size: int) -> Iterator[tuple[str, bool]]:
    """What so much more is beyond, in ZooKeeper's words, and whether that limit is hard: a soft one is advice, and none
    where there is a hard one."""
    limit, now = _read(limits), _read(stats)
    for name, title, more in (("count", "Count", count), ("bytes", "Byte", size)):
        hard = limit.get(f"{title.lower()}HardLimit", -1)
        maximum = hard if hard > -1 else limit.get(name, -1)
        found = now.get(name, -1) + more
        if more != 0 and -1 < maximum < found:
            yield f"current {name}={found}, {'hard' if hard > -1 else 'soft'}{title}Limit={maximum}", hard > -1


def _read(text: bytes | None) -> dict[str, int]:
    """What makes no sense is left out."""
    track = {}
    for pair in _SEPARATORS.split((text or b"").decode(errors="replace")):
        key, _, value = pair.partition("=")
        if re.fullmatch(r"-?\d{1,18}=*", value, re.ASCII):
            track[key] = int(value.rstrip("="))
    return track


def _write(track: dict[str, int]) -> bytes:
    """ZooKeeper's spelling, with the "=" that makes its older parsers stop there."""
    count, size = track.pop("count", -1), track.pop("bytes", -1)
    others = "".join(f";{key}={track[key]}" for key in sorted(track))
    return f"count={count},bytes={size}{'=' if others else ''}{others}".encode()
