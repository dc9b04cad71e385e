"""References to an object without a name, which is deleted with the last one.

Its creator has a reference. A pickle in a queue is one too, identified by a token, and so is the object
that its receiver gets, which takes over the token. A process that drops a reference writes one record, which
contains the tokens of all pickles that were made with it, and the token that it took over. A token that
was issued and taken over cancels out.

The object is deleted when its creator has dropped its reference, and no token is left. A reference that
still exists took over a token, which was issued by a reference that was dropped, and so is left, or by
one that exists, and so on up to the creator's. A pickle that can be read more than once has no token, and
the reference with which it was made is never dropped. Such an object is deleted with the generation of
its creator.

A record that is written twice, after a lost reply, can only keep the object.

Znodes:
  ``<objects>/references/<name>``  the records together: ``*`` if the creator has dropped its reference,
      ``+<token>`` for each that was issued, ``-<token>`` for each that was taken over
"""

from __future__ import annotations

from collections.abc import Iterable

from distsync._protocols.retries import INTERRUPTED, delete_guaranteed, parent_of, read, remove_tree
from distsync._protocols.steps import Connected, Create, GetData, SetData
from distsync.errors import BadVersionError, NodeExistsError, NoNodeError

FOLDER = "references"
CREATOR_DROPPED = "*"
ISSUED, TAKEN = "+", "-"

#: Maximum number of tokens in a record. An object with more is kept.
MAX_TOKENS = 1000


async def drop_reference(path: str, object_path: str, record: Iterable[str]) -> None:
    """Add a record to the znode ``path``, and delete the object if this was the last reference."""
    while True:
        try:
            node = await read(GetData(path))
            found, version = frozenset(node.data.decode("ascii", "replace").split()), node.stat.version
        except NoNodeError:
            found, version = frozenset(), None
        tokens = merged(found, record)
        if tokens == {CREATOR_DROPPED}:
            await delete_guaranteed(path)
            await remove_tree(object_path)
            return
        if len(tokens) > MAX_TOKENS:
            return
        data = " ".join(sorted(tokens)).encode()
        try:
            if version is not None:
                await SetData(path, data, version)
            else:
                await Create(path, data)
            return
        except (BadVersionError, NodeExistsError):
            continue  # another process has added a record
        except NoNodeError:
            if version is None and not await _make_folder(parent_of(path)):
                return
        except INTERRUPTED:
            await Connected()


def merged(found: frozenset[str], record: Iterable[str]) -> frozenset[str]:
    """Return the tokens that are left when a record is added to those that were found."""
    tokens = set(found)
    for each in record:
        inverse = {ISSUED: TAKEN, TAKEN: ISSUED}.get(each[0], "") + each[1:]
        if inverse in tokens and inverse != each[1:]:
            tokens.discard(inverse)
        else:
            tokens.add(each)
    return frozenset(tokens)


async def _make_folder(path: str) -> bool:
    """Create the znode above the records. Return False if the generation has ended."""
    try:
        await Create(path)
    except NodeExistsError:
        pass
    except NoNodeError:
        return False
    except INTERRUPTED:
        await Connected()
    return True
