"""Cached locks: how they are watched, queried and evicted.

No recipe has this. A lock that was acquired without waiting may keep its znode for a while after
its release, so that its process can acquire it again without a request.

The holder of such a lock, or the process that caches it, watches the children of the queue. The
first event there ends the caching: a cached lock is evicted at once, and a held lock is not cached
at its release.

A non-blocking caller has to tell a held lock from a cached one. The data of the znode has the key
``"keep"`` if it may be cached. It is not cached if any child was created or deleted since (if pzxid
is not its czxid): the first event ends the caching. Otherwise the caller sends a query: it creates
and deletes a child in one transaction, which no listing shows, but which fires the watch. If the
lock is cached, its process replies by deleting the znode; if it is held, by removing ``"keep"``
from the data. The transaction also rewrites the data of the queue's znode. If that is the last
change of this znode (mzxid equals pzxid), another client has already sent a query, and later
callers wait for the same reply.

Readers (shared_lock.py) are cached side by side. The first *writer* in the queue ends their
caching, other readers do not. So each reader with ``"keep"`` may be cached, whichever children were
created or deleted since. It has been queried if the queue's znode was written (mzxid) after the
reader's was created. A cached reader lists the queue after each event, which is cheaper than
acquiring it again if it was used in between. At the second event since its last use it is evicted.
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
    Pipeline,
    ReportLoss,
    SetData,
    Signal,
    Stat,
    Wait,
    WakeReason,
    Watch,
)
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import (
    AccessDeniedError,
    BadVersionError,
    DistsyncError,
    NoNodeError,
    SessionLostError,
)

#: Seconds to wait for the reply to a query, which takes two round trips and one or two thread
#: switches. A process that does not reply, because it is stopped, counts as a holder. A call with a
#: shorter timeout sends a query before it enqueues, instead of waiting for an eviction.
QUERY_TIMEOUT_S = 0.5

#: Key in the data of a znode: how many seconds it may stay cached.
KEEP = "keep"


def is_cached_entry(data: bytes) -> bool:
    """Return whether a znode with this data may be cached."""
    if b'"keep"' not in data:
        return False
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise_if_from_handler(error)
        return False
    return isinstance(fields, dict) and bool(fields.get(KEEP))


def without_cache_flag(data: bytes) -> bytes:
    """Return the data of a znode that is not to be cached."""
    if not is_cached_entry(data):
        return data
    fields = json.loads(data)
    del fields[KEEP]
    return json.dumps(fields, separators=(",", ":")).encode()


def only_readers(order: list[wait_queue.ContenderNode]) -> bool:
    """Return whether there are contenders, and all of them are readers."""
    return bool(order) and not any(map(wait_queue.is_writer, order))


# ---- the process that holds or caches the lock


def is_only_contender(entry: wait_queue.QueueEntry, listing: Listing) -> bool:
    """Return whether there is no other contender, and was none since ``entry`` was enqueued."""
    order = wait_queue.in_order(listing.names)
    return [each.name for each in order] == [entry.name] and listing.stat.pzxid == entry.token


async def watch_for_contenders(
    grant: Grant, cache: CacheState, evict: Callable[[], Coroutine[Any, Any, Any]], *, reads: bool = False
) -> None:
    """Watch for contenders, or with ``reads`` for writers, until the grant ends.

    Call ``evict()`` when one arrives while the lock is cached, or when it was cached long enough.
    """
    wait = _wait_for_writer if reads else _wait_for_contender
    try:
        if await wait(grant, cache) and not cache.idle:
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
    """Return True if a query arrives while the lock is held.

    Return False if a contender arrives, if the grant ends, or if it was cached long enough.
    """
    while True:
        watch = Watch()
        watch.subscribe(cache.mark_contended)  # at once, so that a simultaneous release does not cache the lock
        listing = await _listing(grant, watch)
        if listing is None or not is_only_contender(grant.entry, listing):
            return listing is not None and len(wait_queue.in_order(listing.names)) == 1
        if not await _wait_for_change(grant, cache, watch) or cache.idle:
            return False
        # Otherwise the watch may have fired for a lost connection.


async def _wait_for_writer(grant: Grant, cache: CacheState) -> bool:
    """Like _wait_for_contender, but other readers may come and go.

    Also return True if a writer has arrived and then something else has changed: the data of our
    znode still says that it may be cached, which is no longer true.
    """
    uses: int | None = None
    while True:
        watch = Watch()
        listing = await _listing(grant, watch)
        if listing is None or listing.stat.mzxid > grant.entry.token:  # a client has sent a query
            return listing is not None
        if not only_readers(wait_queue.in_order(listing.names)):
            break
        if not await _wait_for_change(grant, cache, watch) or cache.uses == uses:
            break
        uses = cache.uses
    cache.contended = True
    if not cache.idle:  # most are released before any client sends a query, and need no reply
        await Wait(watch, grant.loss, cache.ended)
    return True


async def _listing(grant: Grant, watch: Watch | None = None) -> Listing | None:
    """List the queue. Return None if our znode is missing."""
    (listing,) = await wait_queue.read_consistent(grant.entry, Children(grant.entry.directory, watch))
    if isinstance(listing, DistsyncError) and not isinstance(listing, NoNodeError):
        raise listing
    if isinstance(listing, Listing) and grant.entry.name in listing.names:
        return listing
    await ReportLoss(grant.entry.path)
    return None


async def _wait_for_change(grant: Grant, cache: CacheState, watch: Watch) -> bool:
    """Return True when ``watch`` fires, False if the grant ends or was cached long enough.

    Its use is checked once in ``cache.seconds``, and it is evicted if it was not used since the
    last check. So a release starts no timer, and a lock stays cached for ``cache.seconds`` at
    least, and for twice as long at most.
    """
    while True:
        uses, idle = cache.uses, cache.idle
        cache.wakeup = None if idle else Signal()
        signals = [watch, grant.loss, grant.revoke_requested, cache.ended, *([cache.wakeup] if cache.wakeup else [])]
        woke = await Wait(*signals, limit=cache.seconds if idle else None)
        cache.wakeup = None
        if grant.loss.fired or cache.ended.fired or grant.revoke_requested.fired:
            return False
        if watch.fired:
            return True
        if woke is WakeReason.LIMIT and cache.idle and cache.uses == uses:
            return False


async def _reply_to_query(grant: Grant, cache: CacheState) -> None:
    """Remove "keep" from the data of our znode, and preserve what other clients wrote there."""
    while not (cache.ended.fired or grant.loss.fired or cache.idle):
        if (await Connected()).session_id != grant.entry.session_id:
            return
        try:
            node = await GetData(grant.entry.path)
            await SetData(grant.entry.path, without_cache_flag(node.data), node.stat.version)
            return
        except BadVersionError:
            continue
        except NoNodeError:
            await ReportLoss(grant.entry.path)
            return
        except INTERRUPTED:
            continue


# ---- clients that send queries


async def is_occupied(directory: str, counts: Callable[[list[wait_queue.ContenderNode]], bool] = bool) -> bool:
    """Return whether a process holds the lock or waits for it, rather than just caching it.

    ``counts`` tells which contenders matter, given all of them in queue order. A cached lock is
    queried, which evicts it.
    """
    queried: Node | None = None
    while True:
        try:
            listing = await read(Children(directory))
        except NoNodeError:
            return False
        order = wait_queue.in_order(listing.names)
        if counts(order) and only_readers(order):
            if await _is_reading(directory, listing.stat, order[0].name):
                return True
            continue
        if len(order) != 1 or not counts(order):
            return counts(order)
        path, watch = f"{directory}/{order[0].name}", Watch()
        try:
            node = await read(GetData(path))
            untouched = listing.stat.pzxid == node.stat.czxid
            if queried is None and not (is_cached_entry(node.data) and (untouched or _was_queried(listing, node))):
                return True
            if queried is None and untouched:
                current = await _query_holder(directory, listing.stat, path, watch)
            else:
                current = await read(GetData(path, watch))
            queried = queried or node
            if _is_answer(queried, current):
                return True
        except (NoNodeError, BadVersionError):  # it was deleted, or another client sends a query
            continue
        except AccessDeniedError:
            return True
        if await Wait(watch, limit=QUERY_TIMEOUT_S, allow_grace=True) is not WakeReason.SIGNAL:
            return True


async def holder_names(directory: str, watch: Watch) -> tuple[str, ...]:
    """List the queue, which is empty if the lock is only cached.

    ``watch`` fires at the next change.
    """
    names = await names_below(directory, watch)
    order = wait_queue.in_order(names)
    return () if (len(order) == 1 or only_readers(order)) and not await is_occupied(directory) else names


async def holders_and_waiters(directory: str) -> list[tuple[str, Node]]:
    """Like wait_queue.contenders, without those that only cache the lock."""
    found = await wait_queue.contenders(directory)
    maybe_cached = [path.rpartition("/")[2] for path, node in found if is_cached_entry(node.data)]
    if maybe_cached and only_readers(wait_queue.in_order(path.rpartition("/")[2] for path, _ in found)):
        for name in maybe_cached:
            while (stat := await read(Exists(directory))) and await _is_reading(directory, stat, name) is None:
                pass
        return await wait_queue.contenders(directory)
    if len(found) == 1 and maybe_cached and not await is_occupied(directory):
        return await wait_queue.contenders(directory)
    return found


async def _is_reading(directory: str, directory_stat: Stat, name: str) -> bool | None:
    """Return whether the contender ``name`` reads, rather than just caching the lock.

    Query it, unless ``directory_stat``, the Stat of the queue, shows that it was queried. Return
    False if it was deleted, and None if it has to be checked again.
    """
    path, watch = f"{directory}/{name}", Watch()
    try:
        node = await read(GetData(path))
        if is_cached_entry(node.data) and directory_stat.mzxid > node.stat.czxid:
            node = await read(GetData(path, watch))
        elif is_cached_entry(node.data):
            node = await _query_holder(directory, directory_stat, path, watch)
        if not is_cached_entry(node.data):
            return True
    except NoNodeError:
        return False
    except BadVersionError:  # another client sends a query
        return None
    except AccessDeniedError:
        return True
    return None if await Wait(watch, limit=QUERY_TIMEOUT_S, allow_grace=True) is WakeReason.SIGNAL else True


def _was_queried(listing: Listing, node: Node) -> bool:
    """Return whether the last change in the queue was a query."""
    return listing.stat.mzxid == listing.stat.pzxid > node.stat.mzxid


def _is_answer(queried: Node, node: Node) -> bool:
    """Return whether the znode was rewritten in reply to a query, or replaced by another one."""
    return (queried.stat.czxid, queried.stat.mzxid) != (node.stat.czxid, node.stat.mzxid)


async def _query_holder(directory: str, directory_stat: Stat, path: str, watch: Watch) -> Node:
    """Send a query to the process of ``path``. ``watch`` fires at its reply.

    Raise BadVersionError if another client has sent one since ``directory_stat`` was read.
    """
    query = f"{directory}/knock-{await Guid()}-"
    data = (await read(GetData(directory))).data if directory_stat.data_length else b""
    rewrite = SetData(directory, data, directory_stat.version)
    while True:
        node, reply = await Pipeline(GetData(path, watch), Multi((Create(query), Delete(query), rewrite)))
        for each in (node, reply):
            if isinstance(each, DistsyncError) and not isinstance(each, INTERRUPTED):
                raise each
        if isinstance(node, Node) and not isinstance(reply, INTERRUPTED):
            return node
        await Connected()
