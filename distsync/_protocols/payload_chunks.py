"""Payloads that are too large for one znode: split over several, which the item then names.

Source: ours; ZooKeeper's limit of a request is 1 MiB (jute.maxbuffer).

Rules for this file: pure; it knows nothing of queues. All parts are there before anybody learns of them, and whoever
ends the item deletes them; what is left over goes with the folder.

Picture: ``<folder>/<group>.<number>``   one part
Data of an item: ``=`` and the payload, or ``/`` and ``<group>.<number of parts>``.
"""

from __future__ import annotations

from collections.abc import Sequence

from distsync._protocols.retries import INTERRUPTED, read_all
from distsync._protocols.steps import Children, Connected, Create, Delete, GetData, Node, Together
from distsync.errors import CorruptNodeError, NodeExistsError, NoNodeError

#: Bytes of one part, and the longest payload that is not split: a request takes some more with its paths.
PART_BYTES = 800_000
#: Parts that are on their way at the same time.
BATCH_SIZE = 4


def is_large(payload: bytes) -> bool:
    """Whether it has to be split."""
    return len(payload) > PART_BYTES


def whole(payload: bytes) -> bytes:
    """The data of an item with this payload."""
    return b"=" + payload


async def split(folder: str, group: str, payload: bytes) -> bytes:
    """The parts of ``payload`` are there: the data of the item that names them. Raises NoNodeError without a folder."""
    count = -(-len(payload) // PART_BYTES)
    for start in range(0, count, BATCH_SIZE):
        numbers = range(start, min(start + BATCH_SIZE, count))
        await _create([(f"{folder}/{group}.{n}", payload[n * PART_BYTES : (n + 1) * PART_BYTES]) for n in numbers])
    return f"/{group}.{count}".encode()


async def _create(parts: Sequence[tuple[str, bytes]]) -> None:
    """These are there. Nobody else makes parts of that name: what exists already is ours."""
    while True:
        answers = await Together(*(Create(path, data) for path, data in parts))
        if not any(isinstance(answer, INTERRUPTED) for answer in answers):
            break
        await Connected()
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, NodeExistsError):
            raise answer


def parts_of(folder: str, data: bytes) -> list[str]:
    """The paths of the parts that this item names. Raises CorruptNodeError."""
    if data[:1] != b"/":
        return []
    group, _, count = data[1:200].decode(errors="replace").rpartition(".")
    if not (group and count.isdigit() and len(count) <= 4):
        raise CorruptNodeError(folder, data[:80])
    return [f"{folder}/{group}.{number}" for number in range(int(count))]


async def joined(folder: str, data: bytes) -> bytes:
    """The payload of an item with this data. Raises NoNodeError if a part has gone: the item was ended."""
    if data[:1] == b"=":
        return data[1:]
    paths, found = parts_of(folder, data), []
    if not paths:
        raise CorruptNodeError(folder, data[:80])
    for start in range(0, len(paths), BATCH_SIZE):
        some = paths[start : start + BATCH_SIZE]
        for path, node in zip(some, await read_all(*map(GetData, some)), strict=True):
            if not isinstance(node, Node):
                raise NoNodeError(path)
            found.append(node.data)
    return b"".join(found)


async def delete_all(paths: Sequence[str]) -> None:
    """These are gone."""
    await read_all(*map(Delete, paths))


async def throw_away_groups(folder: str, prefix: str) -> None:
    """All parts are gone whose group begins so."""
    (listing,) = await read_all(Children(folder))
    if not isinstance(listing, NoNodeError):
        await delete_all([f"{folder}/{name}" for name in listing.names if name.startswith(prefix)])
