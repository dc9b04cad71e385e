"""Holds that a process leaves at its end, and that another process may release afterwards.

In the standard library, a lock whose holder ends stays locked until another process releases it. Here it is free at
once. So that such a release is neither an error nor adds a permit, a process that ends in good order leaves a znode
for each hold. A release that finds no holder deletes it.

Znodes: ``<path>/ended-<n>``, at most 1 for a lock and 1 for each initial permit of a semaphore.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from distsync._protocols.locks.grant import Grant
from distsync._protocols.retries import INTERRUPTED, read
from distsync._protocols.steps import Children, Connected, Create, Delete, Multi
from distsync.errors import DistsyncError, NodeExistsError, NoNodeError

PREFIX = "ended-"
#: The names of these znodes.
ENDED = re.compile(f"{PREFIX}[0-9]{{1,9}}")


def ended_in(names: Iterable[str]) -> list[str]:
    """Return the znodes of ended holders among the children of a lock or semaphore."""
    return [name for name in names if ENDED.fullmatch(name)]


class EndedHolders:
    """The locks and semaphores of which this process records at its end what it holds."""

    def __init__(self) -> None:
        self._holders: weakref.WeakKeyDictionary[Any, tuple[Callable[[Any], Iterable[Grant]], int]] = (
            weakref.WeakKeyDictionary()
        )

    def watch(self, core: Any, held: Callable[[Any], Iterable[Grant]], limit: int) -> None:
        """Record what is held of ``core`` at the end.

        Args:
            core: The state of a lock or semaphore.
            held: Called with the state to get its grants.
            limit: Maximum number of znodes.
        """
        self._holders[core] = held, limit

    async def record(self) -> None:
        """Replace each contender that holds by a znode that stays. It runs when the client closes."""
        for core, (held, limit) in tuple(self._holders.items()):
            for grant in tuple(held(core)):
                if not grant.loss.fired:
                    await _record(core.path, grant.entry.path, limit)


async def _record(path: str, holder: str, limit: int) -> None:
    try:
        taken = ended_in((await read(Children(path))).names)
    except DistsyncError:
        return
    for number in range(limit):
        name = f"{PREFIX}{number}"
        while name not in taken:
            try:
                await Multi((Delete(holder), Create(f"{path}/{name}")))
                return
            except NodeExistsError:
                taken.append(name)
            except INTERRUPTED:
                await Connected()
            except DistsyncError:  # another process has released it, or an ACL denies the access
                return


async def forget(path: str) -> bool:
    """Delete the znode of an ended holder. Return whether it existed, or may have."""
    while True:
        try:
            await Delete(path)
            return True
        except NoNodeError:
            return False
        except INTERRUPTED as error:
            if getattr(error, "sent", True):
                return True
            await Connected()
