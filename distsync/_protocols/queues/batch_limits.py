"""Limits of a transaction with many items.

Source: ZooKeeper's maximum size of a request, jute.maxbuffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

#: Maximum number of items in a transaction: more save little, and delay the requests of others.
BATCH = 100
#: Maximum bytes of items in a transaction: a request larger than 1 MiB is refused (jute.maxbuffer).
BATCH_BYTES = 900_000
#: Bytes that an item needs in addition to its data: path, GUID, counter.
ITEM_BYTES = 400


def batches(
    items: Sequence[tuple[str, bytes]], path_bytes: int, max_items: int = BATCH
) -> Iterator[Sequence[tuple[str, bytes]]]:
    """Split items, pairs of key and data, into transactions, in order."""
    batch: list[tuple[str, bytes]] = []
    size = 0
    for item in items:
        more = len(item[1]) + ITEM_BYTES + 2 * path_bytes
        if batch and (len(batch) >= max_items or size + more > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += more
    if batch:
        yield batch
