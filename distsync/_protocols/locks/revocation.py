"""Revocation: anybody may ask whoever holds a lock to let go of it; the holder consents, or its znode is deleted.

Source: recipes.txt, "Revocable Shared Locks". The words of other clients are ours to add.

Rules for this file: pure; it knows lines, and not whose line it is. What the holder does about it is his own affair.

A writer who reads too and lets go of the writer only (downgrade.py) gets another znode, of the same number. It inherits
the word, unless that was for the writer alone, and whoever takes the lock from him follows him there.

Picture: ``<path>/_c_<guid>-lock-<sequence>``  the holder's znode, data = its own JSON and ``"unlock": true``;
                                               ``"unlock": "writer"`` where it is enough that nobody writes
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    SetData,
    Sync,
    Together,
    Wait,
    WakeReason,
    Watch,
    WatchNode,
)
from distsync.errors import BadVersionError, DeadlineError, DistsyncError, NoNodeError, NotHeldError

#: What the recipe writes into the holder's znode, and what Curator does.
UNLOCK = b"unlock"
CURATOR = b"__REVOKE__"

#: Nothing was written, as far as is known: it is to be looked at again.
RETRYABLE_ERRORS = (BadVersionError, *INTERRUPTED)

#: The word where only the writer is meant.
WRITER = "writer"


def _fields(data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def is_revoke_request(data: bytes) -> bool:
    """Whether a znode with this data is asked to go."""
    return data.strip() in (UNLOCK, CURATOR) or bool(_fields(data).get("unlock"))


def is_for_writer(data: bytes) -> bool:
    """Whether who reads by it too may read on."""
    return _fields(data).get("unlock") == WRITER


def revoke_request(path: str, data: bytes, marker: object = True) -> bytes:
    """What asks the holder whose znode has this data: the word of his own client, and who he is stays there."""
    fields = _fields(data)
    if fields:
        more = {"unlock": True if is_revoke_request(data) and not is_for_writer(data) else marker}
        return json.dumps({**fields, **more}, separators=(",", ":")).encode()
    return CURATOR if path.rpartition("/")[2].startswith("_c_") else UNLOCK


def carry_over(path: str, mine: bytes, writers: bytes) -> bytes:
    """What the reader's znode at ``path`` says when it follows the writer's, which says ``writers``."""
    return revoke_request(path, mine) if is_revoke_request(writers) and not is_for_writer(writers) else mine


async def watch_revocation(grant: Grant, reads: bool = False) -> None:
    """From now on ``grant.revoke_requested`` fires when somebody asks for what is held; who ``reads`` under a writer's
    znode is not meant where the writer is."""

    def hear(data: bytes) -> None:
        if is_revoke_request(data) and not (reads and is_for_writer(data)):
            grant.revoke_requested.fire()

    grant.heeded = True
    await WatchNode(grant.loss, hear)


async def until_asked(grant: Grant) -> bool:
    """Somebody asks for it, or it is lost; False at the deadline."""
    return await Wait(grant.revoke_requested, grant.loss) is not WakeReason.DEADLINE


def everybody(contender: wait_queue.ContenderNode) -> bool:
    return True


async def request_revocation(directory: str, matches: wait_queue.Rule = everybody, marker: object = True) -> list[str]:
    """The znodes of those who hold and are meant, each of which now says "unlock".

    Raises NotHeldError if nobody holds.
    """
    asked = await _held(directory, matches) or await _held(directory, matches, Sync(directory))
    if not asked:
        raise NotHeldError(f"nobody holds {directory}: there is nothing to revoke")
    await _write(asked, marker)
    return list(asked)


async def _held(directory: str, matches: wait_queue.Rule, *before: Sync) -> dict[str, Node]:
    """By which znodes those hold who are meant; ``before`` that is known, it is seen also where our server lags."""
    *_, listing = await read_all(*before, Children(directory))
    order = wait_queue.in_order(listing.names) if isinstance(listing, Listing) else []
    paths = [f"{directory}/{each.name}" for each in wait_queue.current_holders(order) if matches(each)]
    nodes = await read_all(*map(GetData, paths)) if paths else ()
    held = {path: node for path, node in zip(paths, nodes, strict=True) if isinstance(node, Node)}
    return await _surely_held(directory, held) if any(is_cached_entry(node.data) for node in held.values()) else held


async def _surely_held(directory: str, asked: dict[str, Node]) -> dict[str, Node]:
    """Of those who are to be asked, some of whom may only keep it, who holds."""
    if only_readers([each for path in asked if (each := wait_queue.parse(path.rpartition("/")[2]))]):
        held = dict(await holders_and_waiters(directory))
        return {path: held[path] for path in asked if path in held}
    return {} if len(asked) == 1 and not await is_occupied(directory) else asked


async def _write(asked: dict[str, Node], marker: object) -> None:
    """Each of these znodes says the word, beside what others write there at the same time."""
    while asked:
        await Connected()
        writes = [
            SetData(path, revoke_request(path, node.data, marker), node.stat.version) for path, node in asked.items()
        ]
        answers = await Together(*writes)
        _raise_refusal(answers, NoNodeError, BadVersionError)
        again = [path for path, answer in zip(asked, answers, strict=True) if isinstance(answer, RETRYABLE_ERRORS)]
        nodes = await read_all(*map(GetData, again)) if again else ()
        found = {path: node for path, node in zip(again, nodes, strict=True) if isinstance(node, Node)}
        asked = {path: node for path, node in found.items() if node.data != revoke_request(path, node.data, marker)}


async def still_held(paths: Sequence[str], include_downgraded: bool = False) -> Sequence[str]:
    """None, once all have gone; at the deadline those that have perhaps not. ``include_downgraded``: a writer who has
    become a reader has not gone."""
    for place, path in enumerate(paths):
        try:
            while await _is_there(path):
                pass
        except DeadlineError:
            return paths[place:]
    try:
        heirs = await _successor_nodes(paths) if include_downgraded else ()
    except DeadlineError:
        return paths
    return await still_held(heirs) if heirs else ()


async def _successor_nodes(paths: Sequence[str]) -> Sequence[str]:
    """The znodes of readers who were writers by ``paths``, which have gone: they have the same numbers."""
    parsed = [wait_queue.parse(path.rpartition("/")[2]) for path in paths]
    numbers = {each.number for each in parsed if each and wait_queue.shared(each)}
    if not numbers:
        return ()
    directory = paths[0].rpartition("/")[0]
    try:
        listing = await read(Children(directory))
    except NoNodeError:
        return ()
    readers = [each for each in wait_queue.in_order(listing.names) if not wait_queue.shared(each)]
    return [f"{directory}/{each.name}" for each in readers if each.number in numbers]


async def _is_there(path: str) -> bool:
    """False once it has gone; True if somebody wrote into it meanwhile. Raises DeadlineError."""
    watch = Watch()
    try:
        await read(GetData(path, watch))
    except NoNodeError:
        return False
    if await Wait(watch) is WakeReason.DEADLINE:
        raise DeadlineError(f"{path} to go")
    return True


async def delete(paths: Sequence[str], include_downgraded: bool = False) -> bool:
    """With freaking laser beams: these znodes are gone. Whether any was there still. Their names never come again."""
    there = await _each_of([Delete(path) for path in paths])
    heirs = await _successor_nodes(paths) if include_downgraded else ()
    return await _each_of([Delete(path) for path in heirs]) or there


def _raise_refusal(answers: Sequence[Any], *expected: type[Exception]) -> None:
    """Raises the first error that is none of those ``expected``, and no interruption."""
    for answer in answers:
        if isinstance(answer, DistsyncError) and not isinstance(answer, (*expected, *INTERRUPTED)):
            raise answer


async def _each_of(requests: Sequence[Delete]) -> bool:
    """All are executed, again where an answer was lost; a znode that is not there needs none. Whether any was there."""
    there, rest = False, list(requests)
    while rest:
        await Connected()
        answers = await Together(*rest)
        there = there or not all(isinstance(answer, NoNodeError) for answer in answers)
        _raise_refusal(answers, NoNodeError)
        rest = [request for request, answer in zip(rest, answers, strict=True) if isinstance(answer, INTERRUPTED)]
    return there
