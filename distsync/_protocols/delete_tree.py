"""Recursive deletion."""

from __future__ import annotations

from distsync._protocols.retries import read
from distsync._protocols.steps import Children, Delete
from distsync.errors import DistsyncError, NoNodeError, NotEmptyError

#: Maximum number of attempts, as other clients may add children in the meantime.
ROUNDS = 3


async def remove_tree(path: str) -> None:
    """Delete ``path`` and all below it, unless other clients keep adding children.

    Raise no error of the server, such as a denied access.
    """
    for rounds_left in range(ROUNDS, -1, -1):  # the last round deletes what the one before emptied
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
