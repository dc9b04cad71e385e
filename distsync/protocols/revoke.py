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

from distsync.errors import BadVersionError, DeadlineError, DistsyncError, NoNodeError, NotHeldError
from distsync.protocols import line
from distsync.protocols.guard import INTERRUPTED, read, read_all
from distsync.protocols.keep import is_taken, keeps, only_readers, standing
from distsync.protocols.lock import Grant
from distsync.session.steps import (
    Children,
    Connected,
    Delete,
    GetData,
    Heed,
    Listing,
    Node,
    SetData,
    Sync,
    Together,
    Wait,
    Watch,
    Woke,
)

#: What the recipe writes into the holder's znode, and what Curator does.
UNLOCK = b"unlock"
CURATOR = b"__REVOKE__"

#: Nothing was written, as far as is known: it is to be looked at again.
RETRIED = (BadVersionError, *INTERRUPTED)

#: The word where only the writer is meant.
WRITER = "writer"


def _fields(data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def is_plea(data: bytes) -> bool:
    """Whether a znode with this data is asked to go."""
    return data.strip() in (UNLOCK, CURATOR) or bool(_fields(data).get("unlock"))


def is_for_writer(data: bytes) -> bool:
    """Whether who reads by it too may read on."""
    return _fields(data).get("unlock") == WRITER


def plea(path: str, data: bytes, word: object = True) -> bytes:
    """What asks the holder whose znode has this data: the word of his own client, and who he is stays there."""
    fields = _fields(data)
    if fields:
        more = {"unlock": True if is_plea(data) and not is_for_writer(data) else word}
        return json.dumps({**fields, **more}, separators=(",", ":")).encode()
    return CURATOR if path.rpartition("/")[2].startswith("_c_") else UNLOCK


def inherited(path: str, mine: bytes, writers: bytes) -> bytes:
    """What the reader's znode at ``path`` says when it follows the writer's, which says ``writers``."""
    return plea(path, mine) if is_plea(writers) and not is_for_writer(writers) else mine


async def heed(grant: Grant, reads: bool = False) -> None:
    """From now on ``grant.plea`` fires when somebody asks for what is held; who ``reads`` under a writer's znode is not
    meant where the writer is."""

    def hear(data: bytes) -> None:
        if is_plea(data) and not (reads and is_for_writer(data)):
            grant.plea.fire()

    grant.heeded = True
    await Heed(grant.loss, hear)


async def until_asked(grant: Grant) -> bool:
    """Somebody asks for it, or it is lost; False at the deadline."""
    return await Wait(grant.plea, grant.loss) is not Woke.DEADLINE


def everybody(contender: line.Contender) -> bool:
    return True


async def ask(directory: str, is_meant: line.Rule = everybody, word: object = True) -> list[str]:
    """The znodes of those who hold and are meant, each of which now says "unlock".

    Raises NotHeldError if nobody holds.
    """
    asked = await _held(directory, is_meant) or await _held(directory, is_meant, Sync(directory))
    if not asked:
        raise NotHeldError(f"nobody holds {directory}: there is nothing to revoke")
    await _write(asked, word)
    return list(asked)


async def _held(directory: str, is_meant: line.Rule, *before: Sync) -> dict[str, Node]:
    """By which znodes those hold who are meant; ``before`` that is known, it is seen also where our server lags."""
    *_, listing = await read_all(*before, Children(directory))
    order = line.in_order(listing.names) if isinstance(listing, Listing) else []
    paths = [f"{directory}/{each.name}" for each in line.front(order) if is_meant(each)]
    nodes = await read_all(*map(GetData, paths)) if paths else ()
    held = {path: node for path, node in zip(paths, nodes, strict=True) if isinstance(node, Node)}
    return await _surely_held(directory, held) if any(keeps(node.data) for node in held.values()) else held


async def _surely_held(directory: str, asked: dict[str, Node]) -> dict[str, Node]:
    """Of those who are to be asked, some of whom may only keep it, who holds."""
    if only_readers([each for path in asked if (each := line.parse(path.rpartition("/")[2]))]):
        held = dict(await standing(directory))
        return {path: held[path] for path in asked if path in held}
    return {} if len(asked) == 1 and not await is_taken(directory) else asked


async def _write(asked: dict[str, Node], word: object) -> None:
    """Each of these znodes says the word, beside what others write there at the same time."""
    while asked:
        await Connected()
        writes = [SetData(path, plea(path, node.data, word), node.stat.version) for path, node in asked.items()]
        answers = await Together(*writes)
        _raise_refusal(answers, NoNodeError, BadVersionError)
        again = [path for path, answer in zip(asked, answers, strict=True) if isinstance(answer, RETRIED)]
        nodes = await read_all(*map(GetData, again)) if again else ()
        found = {path: node for path, node in zip(again, nodes, strict=True) if isinstance(node, Node)}
        asked = {path: node for path, node in found.items() if node.data != plea(path, node.data, word)}


async def left_of(paths: Sequence[str], follow: bool = False) -> Sequence[str]:
    """None, once all have gone; at the deadline those that have perhaps not. ``follow``: a writer who has become a
    reader has not gone."""
    for place, path in enumerate(paths):
        try:
            while await _is_there(path):
                pass
        except DeadlineError:
            return paths[place:]
    try:
        heirs = await _heirs(paths) if follow else ()
    except DeadlineError:
        return paths
    return await left_of(heirs) if heirs else ()


async def _heirs(paths: Sequence[str]) -> Sequence[str]:
    """The znodes of readers who were writers by ``paths``, which have gone: they have the same numbers."""
    parsed = [line.parse(path.rpartition("/")[2]) for path in paths]
    numbers = {each.number for each in parsed if each and line.shared(each)}
    if not numbers:
        return ()
    directory = paths[0].rpartition("/")[0]
    try:
        listing = await read(Children(directory))
    except NoNodeError:
        return ()
    readers = [each for each in line.in_order(listing.names) if not line.shared(each)]
    return [f"{directory}/{each.name}" for each in readers if each.number in numbers]


async def _is_there(path: str) -> bool:
    """False once it has gone; True if somebody wrote into it meanwhile. Raises DeadlineError."""
    watch = Watch()
    try:
        await read(GetData(path, watch))
    except NoNodeError:
        return False
    if await Wait(watch) is Woke.DEADLINE:
        raise DeadlineError(f"{path} to go")
    return True


async def delete(paths: Sequence[str], follow: bool = False) -> bool:
    """With freaking laser beams: these znodes are gone. Whether any was there still. Their names never come again."""
    there = await _each_of([Delete(path) for path in paths])
    heirs = await _heirs(paths) if follow else ()
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
