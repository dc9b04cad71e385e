"""Removing what an object was made of.

Rules for this file: pure; it knows znodes and no recipe.
"""

from __future__ import annotations

from distsync._protocols.retries import read
from distsync._protocols.steps import Children, Delete
from distsync.errors import DistsyncError, NoNodeError, NotEmptyError

#: Somebody may add children while we delete; after so many rounds they win.
ROUNDS = 3


async def remove_tree(path: str) -> None:
    """``path`` and all below it are gone, unless others go on adding to it. Raises nothing of the ensemble's."""
    for rounds_left in range(ROUNDS, -1, -1):  # at 0, what was emptied last is still to go
        try:
            await read(Delete(path))
            return
        except NoNodeError:
            return
        except NotEmptyError:
            if rounds_left:
                await _remove_children(path)
        except DistsyncError:
            return


async def _remove_children(path: str) -> None:
    try:
        listing = await read(Children(path))
    except DistsyncError:
        return
    for name in listing.names:
        await remove_tree(f"{path}/{name}")
