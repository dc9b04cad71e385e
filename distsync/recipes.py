"""What the standard library has no shape for: the other recipes of ZooKeeper, and what workers ask for besides.

Rules for this file: names only; each is at home in a file of its own.
"""

from __future__ import annotations

from distsync.acquiring import acquire_all as acquire_all
from distsync.elections import Candidate as Candidate
from distsync.elections import Election as Election
from distsync.groups import Group as Group
from distsync.groups import Member as Member
from distsync.shared_locks import SharedLock as SharedLock

__all__ = ["Candidate", "Election", "Group", "Member", "SharedLock", "acquire_all"]
