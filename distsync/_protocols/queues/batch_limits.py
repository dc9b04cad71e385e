"""How many items fit into one transaction.

Source: ZooKeeper's limit for a request, jute.maxbuffer.

Rules for this file: pure, and it knows nothing of znodes but how long their paths are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

#: Items of one transaction: beyond that there is little left to save, and others wait for it.
BATCH = 100
#: What they may be together (bytes): a request that is longer than 1 MiB with its paths is refused (jute.maxbuffer).
BATCH_BYTES = 900_000
#: What an item takes beside its data: path, GUID, counter.
ITEM_BYTES = 400


def batches(
    items: Sequence[tuple[str, bytes]], path_bytes: int, max_items: int = BATCH
) -> Iterator[Sequence[tuple[str, bytes]]]:
    """The items, which are key and data, in their order."""
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
