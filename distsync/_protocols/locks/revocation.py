"""Revocation: a client asks the holder to release a lock, or deletes its znode.

Source: ZooKeeper recipes, "Revocable Shared Locks". The formats of other clients are added.

A writer that also reads, and then releases only the writer (downgrade.py), gets a new znode with
the same sequence number. A request to the writer is copied there unless it was for the writer
alone. A client that revokes the lock follows it there.

Znodes:
``<path>/_c_<guid>-lock-<sequence>``  the holder's. A request adds ``"unlock": true`` to its JSON,
                                      or ``"unlock": "writer"`` to release only the writer. When the
                                      lock is taken, ``"revoked": true`` is added. The holder then
                                      deletes the znode as soon as it has noticed its loss
                                      (_client/lease/cleanup.py). It is deleted by the revoker after
                                      NOTICE_S seconds, or if its data are not JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from distsync._protocols import wait_queue
from distsync._protocols.locks.cache_revocation import holders_and_waiters, is_cached_entry, is_occupied, only_readers
from distsync._protocols.locks.lock import Grant
from distsync._protocols.retries import INTERRUPTED, read, read_all
from distsync._protocols.steps import (
    Children,
    Connected,
    Delete,
    GetData,
    Listing,
    Node,
    Pipeline,
    SetData,
    Stat,
    Sync,
    Wait,
    WakeReason,
    Watch,
    WatchNode,
)
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import BadVersionError, DeadlineError, DistsyncError, NoNodeError, NotHeldError

#: Data of a revocation request: the recipe's, and Curator's.
UNLOCK = b"unlock"
CURATOR = b"__REVOKE__"

#: How many seconds a holder has to notice that the lock is taken from it, before its znode is
#: deleted. It watches the znode from a tenth of a second after the grant.
NOTICE_S = 1.0

#: After these errors, read the znode again to see whether it was written.
RETRYABLE_ERRORS = (BadVersionError, *INTERRUPTED)

#: Value of "unlock" if only the writer has to be released.
WRITER = "writer"


def _fields(data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise_if_from_handler(error)
        return {}
    return fields if isinstance(fields, dict) else {}


def is_revoke_request(data: bytes) -> bool:
    """Return whether this data of a znode requests revocation."""
    return data.strip() in (UNLOCK, CURATOR) or bool(_fields(data).get("unlock"))


def is_for_writer(data: bytes) -> bool:
    """Return whether the request is for the writer only, so that a reader may continue."""
    return _fields(data).get("unlock") == WRITER


def revoke_request(path: str, data: bytes, marker: object = True, revoked: bool = False) -> bytes:
    """Return the data that requests revocation, given the current data of the holder's znode.

    The format is that of the holder's client. Its other fields are preserved. With ``revoked``, a
    holder whose data are JSON loses the lock.
    """
    fields = _fields(data)
    if fields:
        more = {"unlock": True if is_revoke_request(data) and not is_for_writer(data) else marker}
        more |= {"revoked": True} if revoked else {}
        return json.dumps({**fields, **more}, separators=(",", ":")).encode()
    return CURATOR if path.rpartition("/")[2].startswith("_c_") else UNLOCK


def carry_over(path: str, mine: bytes, writers: bytes) -> bytes:
    """Return the data of a reader's znode that replaces a writer's with the data ``writers``."""
    if not is_revoke_request(writers) or is_for_writer(writers):
        return mine
    return revoke_request(path, mine, revoked=bool(_fields(writers).get("revoked")))


async def watch_revocation(grant: Grant, reads: bool = False) -> None:
    """Let ``grant.revoke_requested`` fire when revocation is requested.

    With ``reads``, for a reader under a writer's znode, ignore requests for the writer only.
    """

    def on_data(data: bytes) -> None:
        if is_revoke_request(data) and not (reads and is_for_writer(data)):
            grant.revoke_requested.fire()

    grant.watched = True
    await WatchNode(grant.loss, on_data)


async def until_asked(grant: Grant) -> bool:
    """Wait until revocation is requested or the lock is lost. Return False at the deadline."""
    return await Wait(grant.revoke_requested, grant.loss) is not WakeReason.DEADLINE


def any_contender(contender: wait_queue.ContenderNode) -> bool:
    return True


async def request_revocation(
    directory: str, matches: wait_queue.Rule = any_contender, marker: object = True
) -> list[str]:
    """Ask all holders that match to release the lock. Return the paths of their znodes.

    Raise NotHeldError if there are none.
    """
    asked = await _held(directory, matches) or await _held(directory, matches, Sync(directory))
    if not asked:
        raise NotHeldError(f"{directory} is not held: there is nothing to revoke")
    await _write(asked, marker)
    return list(asked)


async def mark_revoked(paths: Sequence[str], include_downgraded: bool = False) -> Sequence[str]:
    """Take the lock from the holders with these znodes, as far as they can notice it.

    Return their znodes: each holder deletes its own as soon as it does not hold the lock any more. With
    ``include_downgraded``, they include the znodes of readers that replaced a writer's.
    """
    nodes = await read_all(*map(GetData, paths))
    found = {path: node for path, node in zip(paths, nodes, strict=True) if isinstance(node, Node)}
    marked = await _write({path: node for path, node in found.items() if _fields(node.data)}, True, revoked=True)
    missing = [path for path in paths if path not in marked]
    successors = await _successor_nodes(missing) if include_downgraded and missing else ()
    return [*marked, *await mark_revoked(successors)] if successors else marked


async def _held(directory: str, matches: wait_queue.Rule, *before: Sync) -> dict[str, Node]:
    """Return paths and znodes of the holders that match. With a Sync, also if our server lags."""
    *_, listing = await read_all(*before, Children(directory))
    order = wait_queue.in_order(listing.names) if isinstance(listing, Listing) else []
    paths = [f"{directory}/{each.name}" for each in wait_queue.current_holders(order) if matches(each)]
    nodes = await read_all(*map(GetData, paths)) if paths else ()
    held = {path: node for path, node in zip(paths, nodes, strict=True) if isinstance(node, Node)}
    return await _without_cached(directory, held) if any(is_cached_entry(node.data) for node in held.values()) else held


async def _without_cached(directory: str, asked: dict[str, Node]) -> dict[str, Node]:
    """Return those of ``asked`` that hold the lock, rather than just caching it."""
    if only_readers([each for path in asked if (each := wait_queue.parse(path.rpartition("/")[2]))]):
        held = dict(await holders_and_waiters(directory))
        return {path: held[path] for path in asked if path in held}
    return {} if len(asked) == 1 and not await is_occupied(directory) else asked


async def _write(asked: dict[str, Node], marker: object, revoked: bool = False) -> Sequence[str]:
    """Write the request into each znode, without overwriting concurrent changes.

    Return the paths of those that exist.
    """
    request = partial(revoke_request, marker=marker, revoked=revoked)
    written: list[str] = []
    while asked:
        await Connected()
        replies = await Pipeline(
            *(SetData(path, request(path, node.data), node.stat.version) for path, node in asked.items())
        )
        written += [path for path, reply in zip(asked, replies, strict=True) if isinstance(reply, Stat)]
        _raise_refusal(replies, NoNodeError, BadVersionError)
        again = [path for path, reply in zip(asked, replies, strict=True) if isinstance(reply, RETRYABLE_ERRORS)]
        nodes = await read_all(*map(GetData, again)) if again else ()
        found = {path: node for path, node in zip(again, nodes, strict=True) if isinstance(node, Node)}
        asked = {path: node for path, node in found.items() if node.data != request(path, node.data)}
        written += [path for path in found if path not in asked]
    return written


async def still_held(paths: Sequence[str], include_downgraded: bool = False) -> Sequence[str]:
    """Wait until all znodes are deleted. Return those that may remain at the deadline.

    With ``include_downgraded``, also wait for the znodes of readers that replaced a writer's.
    """
    for entry, path in enumerate(paths):
        try:
            while await _still_exists(path):
                pass
        except DeadlineError as error:
            raise_if_from_handler(error)
            return paths[entry:]
    try:
        successors = await _successor_nodes(paths) if include_downgraded else ()
    except DeadlineError as error:
        raise_if_from_handler(error)
        return paths
    return await still_held(successors) if successors else ()


async def _successor_nodes(paths: Sequence[str]) -> Sequence[str]:
    """Return the znodes of readers that replaced those of writers, ``paths``.

    They have the same sequence numbers.
    """
    parsed = [wait_queue.parse(path.rpartition("/")[2]) for path in paths]
    numbers = {each.number for each in parsed if each and wait_queue.is_writer(each)}
    if not numbers:
        return ()
    directory = paths[0].rpartition("/")[0]
    try:
        listing = await read(Children(directory))
    except NoNodeError:
        return ()
    readers = [each for each in wait_queue.in_order(listing.names) if not wait_queue.is_writer(each)]
    return [f"{directory}/{each.name}" for each in readers if each.number in numbers]


async def _still_exists(path: str) -> bool:
    """Wait until the znode is deleted and return False, or until it changes and return True.

    Raise DeadlineError at the deadline.
    """
    watch = Watch()
    try:
        await read(GetData(path, watch))
    except NoNodeError:
        return False
    if await Wait(watch) is WakeReason.DEADLINE:
        raise DeadlineError(f"deletion of {path}")
    return True


async def delete(paths: Sequence[str], include_downgraded: bool = False) -> bool:
    """Delete the holders' znodes. Return whether any of them existed.

    This is the forced revocation of the recipe. The names are never reused.
    """
    existed = await _delete_all([Delete(path) for path in paths])
    successors = await _successor_nodes(paths) if include_downgraded else ()
    return await _delete_all([Delete(path) for path in successors]) or existed


def _raise_refusal(replies: Sequence[Any], *expected: type[Exception]) -> None:
    """Raise the first error that is neither ``expected`` nor a lost connection or session."""
    for reply in replies:
        if isinstance(reply, DistsyncError) and not isinstance(reply, (*expected, *INTERRUPTED)):
            raise reply


async def _delete_all(requests: Sequence[Delete]) -> bool:
    """Execute all deletions, repeating those without a reply. Return whether any znode existed."""
    existed, rest = False, list(requests)
    while rest:
        await Connected()
        replies = await Pipeline(*rest)
        existed = existed or not all(isinstance(reply, NoNodeError) for reply in replies)
        _raise_refusal(replies, NoNodeError)
        rest = [request for request, reply in zip(rest, replies, strict=True) if isinstance(reply, INTERRUPTED)]
    return existed
