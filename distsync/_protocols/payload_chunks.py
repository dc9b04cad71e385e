"""Payloads that are too large for one znode are split over several, which the item names.

ZooKeeper limits a request to 1 MiB (jute.maxbuffer). All chunks are written before the item, and
are deleted with it. Leftover chunks are deleted with their directory.

Znodes: ``<directory>/<group>.<number>``, one chunk.

Data of an item: ``=`` and the payload, or ``/`` and ``<group>.<number of chunks>``.
"""

from __future__ import annotations

from collections.abc import Sequence

from distsync._protocols.retries import INTERRUPTED, read_all
from distsync._protocols.steps import Children, Connected, Create, Delete, GetData, Node, Pipeline
from distsync.errors import CorruptNodeError, NodeExistsError, NoNodeError

#: Size of a chunk in bytes, and of the largest payload that is not split. It leaves room for the
#: rest of the request, such as paths.
PART_BYTES = 800_000
#: Number of chunks in flight at the same time.
BATCH_SIZE = 4


def is_large(payload: bytes) -> bool:
    """Return whether the payload has to be split."""
    return len(payload) > PART_BYTES


def unsplit(payload: bytes) -> bytes:
    """Return the data of an item whose payload is not split."""
    return b"=" + payload


async def split(directory: str, group: str, payload: bytes) -> bytes:
    """Write the chunks of ``payload``. Return the data of the item.

    Raise NoNodeError if the directory does not exist.
    """
    count = -(-len(payload) // PART_BYTES)
    for start in range(0, count, BATCH_SIZE):
        numbers = range(start, min(start + BATCH_SIZE, count))
        await _create([(f"{directory}/{group}.{n}", payload[n * PART_BYTES : (n + 1) * PART_BYTES]) for n in numbers])
    return f"/{group}.{count}".encode()


async def _create(parts: Sequence[tuple[str, bytes]]) -> None:
    """Create the chunks. Their names are unique, so those that exist already are ours."""
    while True:
        replies = await Pipeline(*(Create(path, data) for path, data in parts))
        if not any(isinstance(reply, INTERRUPTED) for reply in replies):
            break
        await Connected()
    for reply in replies:
        if isinstance(reply, BaseException) and not isinstance(reply, NodeExistsError):
            raise reply


def parts_of(directory: str, data: bytes) -> list[str]:
    """Return the paths of the chunks of an item. Raise CorruptNodeError if its data is invalid."""
    if data[:1] != b"/":
        return []
    group, _, count = data[1:200].decode(errors="replace").rpartition(".")
    if not (group and count.isdigit() and len(count) <= 4):
        raise CorruptNodeError(directory, data[:80])
    return [f"{directory}/{group}.{number}" for number in range(int(count))]


async def join(directory: str, data: bytes) -> bytes:
    """Return the payload of an item.

    Raise NoNodeError if a chunk was deleted, and the item with it.
    """
    if data[:1] == b"=":
        return data[1:]
    paths, found = parts_of(directory, data), []
    if not paths:
        raise CorruptNodeError(directory, data[:80])
    for start in range(0, len(paths), BATCH_SIZE):
        some = paths[start : start + BATCH_SIZE]
        for path, node in zip(some, await read_all(*map(GetData, some)), strict=True):
            if not isinstance(node, Node):
                raise NoNodeError(path)
            found.append(node.data)
    return b"".join(found)


async def delete_all(paths: Sequence[str]) -> None:
    await read_all(*map(Delete, paths))


async def delete_groups(directory: str, prefix: str) -> None:
    """Delete all chunks whose group starts with ``prefix``."""
    (listing,) = await read_all(Children(directory))
    if not isinstance(listing, NoNodeError):
        await delete_all([f"{directory}/{name}" for name in listing.names if name.startswith(prefix)])
