"""What other processes do in the tests of elections and groups: functions that travel to a Peer by name."""

from __future__ import annotations

from typing import Any


def lead(election: Any) -> int:
    """It leads now; its token."""
    election.acquire()
    return int(election.fencing_token)


def lead_and_resign(election: Any) -> int:
    """It led, and has resigned; the token that it had."""
    with election:
        return int(election.fencing_token)


def join(group: Any, data: Any) -> str:
    """It is a member now; its id."""
    return str(group.join(data).id)


def register(registry: Any, name: str, address: Any, persistent: bool) -> None:
    registry.register(name, address, persistent=persistent)


def add_to(config: Any, key: str, times: int) -> None:
    for _ in range(times):
        config.edit(lambda settings: settings.update({key: settings.get(key, 0) + 1}))


def take_part(partitioner: Any, count: int) -> int:
    """Take part, and hold this many shares."""
    partitioner.join()
    partitioner.wait_for(lambda: len(partitioner) == count, 20)
    return len(partitioner)
