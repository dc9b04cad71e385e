"""Kept locks: a lock that was acquired without waiting keeps its znode for a while after its release.

Source: none of the recipes; ours. The line is that of recipes.txt, "Locks".

Rules for this file: pure; it knows lines and grants, and no lock. Whether a kept lock is taken again is lock.py's.

Who holds (or keeps) has one watch on the children of the line. The first thing that happens there ends the keeping: an
idle keeper deletes its znode at once, a busy one at its release.

Who must not wait has to tell a busy holder from an idle keeper. Its znode says ``"keep"`` if it may be one; and then it
is one only if nobody has come or gone since its znode was made, that is, if that is the last change of the children
(pzxid): whoever has waited there saw somebody go, and whoever saw somebody come keeps no more. Then it is asked: a
child is made and deleted in one transaction, which nobody sees, and which fires the watch. A keeper answers by going,
a holder by taking ``"keep"`` out of its znode. The same transaction writes into the znode of the line what is there
already: where that is the last change of both, somebody else has asked, and whoever comes then waits for the same
answer.

Readers (shared_lock.py) are kept beside each other: the first *writer* who is seen in the line ends their keeping, and
other readers do not. So each that says ``"keep"`` may be a keeper, whoever has come and gone; it was asked if the znode
of the line was written (mzxid) after it came. A keeper lists the line once for each event, which is less than what it
saves if it was used meanwhile: at the second event since its last use it goes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from distsync._protocols import wait_queue
from distsync._protocols.locks.grant import CacheState, Grant
from distsync._protocols.retries import INTERRUPTED, read
from distsync._protocols.state.watch_cache import names_below
from distsync._protocols.steps import (
    Background,
    Children,
    Connected,
    Create,
    Delete,
    Exists,
    GetData,
    Guid,
    Listing,
    Multi,
    Node,
    ReportLoss,
    SetData,
    Signal,
    Stat,
    Together,
    Wait,
    WakeReason,
    Watch,
)
from distsync.errors import (
    AccessDeniedError,
    BadVersionError,
    DistsyncError,
    NoNodeError,
    SessionLostError,
)

#: A keeper that is asked has so long (seconds) to answer, two round trips and a thread's turn or two; one that does not
#: (it is stopped) counts as a holder. A time-out shorter than that does not wait for a keeper to go: it asks it first.
ANSWER_S = 0.5

#: The name in a znode's data of how long (seconds) it may be kept.
KEEP = "keep"


def is_cached_entry(data: bytes) -> bool:
    """Whether a znode with this data may be that of a keeper."""
    if b'"keep"' not in data:
        return False
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and bool(fields.get(KEEP))


def without_cache_flag(data: bytes) -> bytes:
    """The same, of who does not keep."""
    if not is_cached_entry(data):
        return data
    fields = json.loads(data)
    del fields[KEEP]
    return json.dumps(fields, separators=(",", ":")).encode()


def only_readers(order: list[wait_queue.ContenderNode]) -> bool:
    """Whether somebody stands there, and nobody who writes."""
    return bool(order) and not any(map(wait_queue.shared, order))


# ---- keeping


def is_only_contender(place: wait_queue.QueueEntry, listing: Listing) -> bool:
    """Nobody else stands there, and nobody has come or gone since we came."""
    order = wait_queue.in_order(listing.names)
    return [each.name for each in order] == [place.name] and listing.stat.pzxid == place.token


async def watch_for_contenders(
    grant: Grant, cache: CacheState, evict: Callable[[], Coroutine[Any, Any, Any]], *, reads: bool = False
) -> None:
    """Until the grant is over: it is known when somebody comes, or, of who ``reads``, when a writer does; and when it
    was kept for long enough, ``evict()`` lets go of it."""
    until = _wait_for_writer if reads else _wait_for_contender
    try:
        if await until(grant, cache) and not cache.idle:
            cache.contended = True
            await _reply_to_query(grant, cache)
    except SessionLostError:
        pass
    except BaseException:
        cache.contended = True
        if cache.idle:
            await Background(evict())
        raise
    cache.contended = True
    if cache.idle and not grant.loss.fired:
        await evict()


async def _wait_for_contender(grant: Grant, cache: CacheState) -> bool:
    """True once somebody has come whom nobody sees: he has asked. False once somebody is seen there, or it is over, or
    was kept for long enough."""
    watch = Watch()
    watch.subscribe(cache.want)  # at once: a release that comes just now asks the server
    listing = await _listing(grant, watch)
    if listing is not None and is_only_contender(grant.place, listing):
        if not await _wait_for_change(grant, cache, watch) or cache.idle:
            return False
        listing = await _listing(grant)
    return (
        listing is not None
        and len(wait_queue.in_order(listing.names)) == 1
        and not is_only_contender(grant.place, listing)
    )


async def _wait_for_writer(grant: Grant, cache: CacheState) -> bool:
    """As _wait_for_contender, where other readers may come and go. True too once what says that it may be kept is
    wrong, and something more has happened there."""
    uses: int | None = None
    while True:
        watch = Watch()
        listing = await _listing(grant, watch)
        if listing is None or listing.stat.mzxid > grant.place.token:  # somebody has asked
            return listing is not None
        if not only_readers(wait_queue.in_order(listing.names)):
            break
        if not await _wait_for_change(grant, cache, watch) or cache.uses == uses:
            break
        uses = cache.uses
    cache.contended = True
    if not cache.idle:  # most are released before anybody asks
        await Wait(watch, grant.loss, cache.over)
    return True


async def _listing(grant: Grant, watch: Watch | None = None) -> Listing | None:
    """Who stands there; None if our znode does not."""
    (listing,) = await wait_queue.read_consistent(grant.place, Children(grant.place.directory, watch))
    if isinstance(listing, DistsyncError) and not isinstance(listing, NoNodeError):
        raise listing
    if isinstance(listing, Listing) and grant.place.name in listing.names:
        return listing
    await ReportLoss(grant.place.path)
    return None


async def _wait_for_change(grant: Grant, cache: CacheState, watch: Watch) -> bool:
    """True once ``watch`` has fired; False when the grant is over, or was kept for long enough.

    The clock looks at it once in ``cache.seconds``: if it was not used since the last look it goes. So a release costs
    nothing, and a lock is kept for at least so long, and at most twice as long.
    """
    while True:
        uses, idle = cache.uses, cache.idle
        cache.wakeup = None if idle else Signal()
        signals = [watch, grant.loss, grant.revoke_requested, cache.over, *([cache.wakeup] if cache.wakeup else [])]
        woke = await Wait(*signals, limit=cache.seconds if idle else None)
        cache.wakeup = None
        if grant.loss.fired or cache.over.fired or grant.revoke_requested.fired:
            return False
        if watch.fired:
            return True
        if woke is WakeReason.LIMIT and cache.idle and cache.uses == uses:
            return False


async def _reply_to_query(grant: Grant, cache: CacheState) -> None:
    """We hold: who asked finds our znode written, and who comes later that it is not kept. What others have written
    there stays."""
    while not (cache.over.fired or grant.loss.fired or cache.idle):
        if (await Connected()).session_id != grant.place.session_id:
            return
        try:
            node = await GetData(grant.place.path)
            await SetData(grant.place.path, without_cache_flag(node.data), node.stat.version)
            return
        except BadVersionError:
            continue
        except NoNodeError:
            await ReportLoss(grant.place.path)
            return
        except INTERRUPTED:
            continue


# ---- asking


async def is_occupied(directory: str, counts: Callable[[list[wait_queue.ContenderNode]], bool] = bool) -> bool:
    """Whether somebody holds, or waits to, or else what ``counts`` says of the line; a keeper who is asked, and goes,
    did not stand there."""
    asked: Node | None = None
    while True:
        try:
            listing = await read(Children(directory))
        except NoNodeError:
            return False
        order = wait_queue.in_order(listing.names)
        if counts(order) and only_readers(order):
            if await _reads(directory, listing.stat, order[0].name):
                return True
            continue
        if len(order) != 1 or not counts(order):
            return counts(order)
        path, watch = f"{directory}/{order[0].name}", Watch()
        try:
            node = await read(GetData(path))
            untouched = listing.stat.pzxid == node.stat.czxid
            if asked is None and not (is_cached_entry(node.data) and (untouched or _was_queried(listing, node))):
                return True
            if asked is None and untouched:
                now = await _query_holder(directory, listing.stat, path, watch)
            else:
                now = await read(GetData(path, watch))
            asked = asked or node
            if _is_answer(asked, now):
                return True
        except (NoNodeError, BadVersionError):  # it has gone, or somebody else asks
            continue
        except AccessDeniedError:
            return True
        if await Wait(watch, limit=ANSWER_S, allow_grace=True) is not WakeReason.SIGNAL:
            return True


async def holder_names(directory: str, watch: Watch) -> tuple[str, ...]:
    """The names of who stands there, without a keeper, who holds nothing; ``watch`` fires with the next change."""
    names = await names_below(directory, watch)
    order = wait_queue.in_order(names)
    return () if (len(order) == 1 or only_readers(order)) and not await is_occupied(directory) else names


async def holders_and_waiters(directory: str) -> list[tuple[str, Node]]:
    """As wait_queue.contenders, without a keeper, who holds nothing."""
    found = await wait_queue.contenders(directory)
    perhaps = [path.rpartition("/")[2] for path, node in found if is_cached_entry(node.data)]
    if perhaps and only_readers(wait_queue.in_order(path.rpartition("/")[2] for path, _ in found)):
        for name in perhaps:
            while (above := await read(Exists(directory))) and await _reads(directory, above, name) is None:
                pass
        return await wait_queue.contenders(directory)
    if len(found) == 1 and perhaps and not await is_occupied(directory):
        return await wait_queue.contenders(directory)
    return found


async def _reads(directory: str, above: Stat, name: str) -> bool | None:
    """Whether the reader ``name`` does; if it may be that he only keeps he is asked, unless somebody did. False: he has
    gone; None: it is to be looked at again. ``above``: of the directory."""
    path, watch = f"{directory}/{name}", Watch()
    try:
        node = await read(GetData(path))
        if is_cached_entry(node.data) and above.mzxid > node.stat.czxid:
            node = await read(GetData(path, watch))
        elif is_cached_entry(node.data):
            node = await _query_holder(directory, above, path, watch)
        if not is_cached_entry(node.data):
            return True
    except NoNodeError:
        return False
    except BadVersionError:  # somebody else asks
        return None
    except AccessDeniedError:
        return True
    return None if await Wait(watch, limit=ANSWER_S, allow_grace=True) is WakeReason.SIGNAL else True


def _was_queried(listing: Listing, node: Node) -> bool:
    """Whether the last that has happened there was that somebody asked."""
    return listing.stat.mzxid == listing.stat.pzxid > node.stat.mzxid


def _is_answer(asked: Node, node: Node) -> bool:
    """Whoever was asked holds; or somebody else stands there now."""
    return (asked.stat.czxid, asked.stat.mzxid) != (node.stat.czxid, node.stat.mzxid)


async def _query_holder(directory: str, above: Stat, path: str, watch: Watch) -> Node:
    """The keeper of ``path`` is asked; the watch fires at its answer. Raises BadVersionError if he was meanwhile."""
    knock = f"{directory}/knock-{await Guid()}-"
    data = (await read(GetData(directory))).data if above.data_length else b""
    trace = SetData(directory, data, above.version)
    while True:
        node, answer = await Together(GetData(path, watch), Multi((Create(knock), Delete(knock), trace)))
        for each in (node, answer):
            if isinstance(each, DistsyncError) and not isinstance(each, INTERRUPTED):
                raise each
        if isinstance(node, Node) and not isinstance(answer, INTERRUPTED):
            return node
        await Connected()
