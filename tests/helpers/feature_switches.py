"""What makes it fast, switched off: kept locks, the wire of our own, calls that go together.

``DISTSYNC_LINGER=0``, ``DISTSYNC_TEST_FAST_WIRE=0`` and ``DISTSYNC_TEST_TOGETHER=0`` do it for a whole run: ``make
off``. The first two are settings of distsync too (``linger``, ``fast_wire``), and so reach the processes that tests
start.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest

from distsync._protocols.group_commit import GroupCommitter
from distsync._protocols.receipts import always


def set_by_environment(patch: pytest.MonkeyPatch) -> None:
    """As the variables say; DISTSYNC_LINGER is read by each client."""
    patch.setenv("DISTSYNC_FAST_WIRE", os.environ.get("DISTSYNC_TEST_FAST_WIRE", "1"))
    if os.environ.get("DISTSYNC_TEST_TOGETHER", "1") == "0":
        separate(patch)


def separate(patch: pytest.MonkeyPatch) -> None:
    """What threads put, and have done, at the same time goes in as many transactions."""
    patch.setattr(GroupCommitter, "send", carried_alone)


async def carried_alone(ferry: GroupCommitter[Any, Any], load: Any) -> Any:
    results: Sequence[Any] = await ferry._commit_batch((load,), always)
    return results[0]
