"""Retries after lost replies, and deferred clean-up.

What to do when a connection breaks (``DisconnectedError``) before the reply arrives:

* Repeat a read.
* Repeat the deletion of a name that is never reused. NoNodeError counts as success.
* Repeat the creation of a parent. NodeExistsError counts as success.
* Look for an ephemeral znode by the GUID in its name (wait_queue.py).
* Send anything else as a transaction with a receipt (receipts.py).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from distsync._protocols.steps import (
    Background,
    Check,
    Children,
    Connected,
    Create,
    Delete,
    Exists,
    Listing,
    Multi,
    Pipeline,
    Request,
    SetData,
    Sync,
)
from distsync._signal_handlers import is_interrupt, raise_if_from_handler
from distsync.errors import (
    DeadlineError,
    DisconnectedError,
    DistsyncError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OutcomeUnknownError,
    SessionLostError,
)

ReplyT = TypeVar("ReplyT")
ArgumentT = TypeVar("ArgumentT")
ResultT = TypeVar("ResultT")

#: The connection or the session ended before the reply arrived. The request can be repeated.
INTERRUPTED = (DisconnectedError, SessionLostError)

#: Seconds after which background work that was refused, by an ACL for instance, is retried.
REFUSED_S = 5.0

#: Exceptions raised by decoding corrupt data: invalid JSON, wrong fields, deep nesting, huge numbers.
DECODE_ERRORS = (ValueError, TypeError, KeyError, RecursionError, OverflowError)


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def raise_first(replies: tuple[Any, ...]) -> None:
    """Raise the first exception among the replies to a Pipeline, if any."""
    for reply in replies:
        if isinstance(reply, BaseException):
            raise reply


async def read(request: Request[ReplyT]) -> ReplyT:
    """Send a read, repeating it until a reply arrives."""
    while True:
        try:
            return await request
        except INTERRUPTED:
            await Connected()


async def read_all(*requests: Request[Any]) -> tuple[Any, ...]:
    """Send reads together, repeating them until all replies arrive.

    NoNodeError is returned, not raised.
    """
    while True:
        replies = await Pipeline(*requests)
        if not any(isinstance(reply, INTERRUPTED) for reply in replies):
            for reply in replies:
                if isinstance(reply, DistsyncError) and not isinstance(reply, NoNodeError):
                    raise reply
            return replies
        await Connected()


async def ensure(path: str, data: bytes = b"", *, container: bool = False, container_parents: int = 0) -> None:
    """Create the znode and its parents unless they exist.

    ``data`` is only written to a new znode. The next ``container_parents`` znodes above it become
    containers, too. The server may delete one of them between two requests here.
    """
    while True:
        try:
            await Create(path, data, container=container)
            return
        except NodeExistsError:
            return
        except NoNodeError:
            above = max(0, container_parents - 1)
            await ensure(parent_of(path), container=container_parents > 0, container_parents=above)
        except INTERRUPTED:
            await Connected()


async def delete_own(path: str, session_id: int) -> bool:
    """Delete our ephemeral znode, in the background after a deadline.

    Return False if it did not exist.
    """
    try:
        await Delete(path)
    except (NoNodeError, SessionLostError):
        return False
    except DeadlineError as error:
        raise_if_from_handler(error)
        await Background(partial(delete_until_session_ends, path, session_id))
    except DisconnectedError:
        try:
            await delete_until_session_ends(path, session_id)
        except BaseException as error:
            await Background(partial(delete_until_session_ends, path, session_id))
            if not isinstance(error, DeadlineError):
                raise
    return True


async def try_delete_own(path: str, session_id: int) -> bool:
    """Delete our ephemeral znode for a call that goes ahead afterwards.

    Return False at its deadline.

    If the reply is lost, the deletion continues in the background.
    """
    try:
        await Delete(path)
    except (NoNodeError, SessionLostError):
        return True
    except (DeadlineError, DisconnectedError) as error:
        await Background(partial(delete_until_session_ends, path, session_id))
        raise_if_from_handler(error)
        return isinstance(error, DisconnectedError)
    return True


async def delete_until_session_ends(path: str, session_id: int) -> None:
    """Delete an ephemeral znode, retrying until it is deleted or its session has ended."""
    while (await Connected()).session_id == session_id:
        try:
            await Delete(path)
            return
        except (NoNodeError, SessionLostError):
            return
        except DisconnectedError:
            continue


async def delete_guaranteed(path: str) -> bool:
    """Delete a znode whose name is never reused, whichever of our sessions owns it.

    A session that ended may come back: if the leader fails after reporting the end, the next leader
    may not know of it, and keeps the session and its znodes for a whole timeout. Return False if
    the znode did not exist.
    """
    may_have_deleted = False
    while True:
        try:
            await Delete(path)
            return True
        except NoNodeError:
            return may_have_deleted
        except INTERRUPTED as error:
            may_have_deleted = may_have_deleted or isinstance(error, DisconnectedError)
            await Connected()


async def cancel_pending_create(directory: str, guid: str) -> None:
    """Delete an ephemeral znode with this GUID, whose create may have been executed.

    A current, a later or an earlier session may own it.
    """
    while True:
        await Connected()
        _, listing = await Pipeline(Sync(directory), Children(directory))
        if isinstance(listing, INTERRUPTED):
            continue
        if isinstance(listing, DistsyncError):
            return
        for name in listing.names:
            if guid in name:
                await delete_guaranteed(f"{directory}/{name}")
        return


Work = Callable[[], Coroutine[Any, Any, object]]


class DeferredWork:
    """Work that calls of this process left unfinished, and that a later call can finish."""

    def __init__(self) -> None:
        self._works: list[Work] = []

    async def defer(self, work: Work) -> None:
        """Run ``work`` in the background, as soon as there is a connection."""
        await Background(self.deferred(work))

    def deferred(self, work: Work) -> Coroutine[Any, Any, None]:
        """Register ``work``, and return it as a protocol for the background."""
        self._works.append(work)
        return self._finish(work)

    async def finish(self) -> None:
        """Finish all deferred work now."""
        for work in tuple(self._works):
            await self._finish(work)

    async def _finish(self, work: Work) -> None:
        """Run ``work``. It stays registered if a deadline or an interrupt ends it."""
        is_done = True
        try:
            await work()
        except BaseException as error:
            is_done = not (is_interrupt(error) or isinstance(error, DeadlineError))
            raise
        finally:
            if is_done and work in self._works:
                self._works.remove(work)


def call_user_function(
    function: Callable[[ArgumentT], ResultT], argument: ArgumentT
) -> tuple[ResultT | None, Exception | None]:
    """Call a user function. Return its result and None, or None and its exception.

    An exception that is not an Exception, such as KeyboardInterrupt, is raised.
    """
    try:
        return function(argument), None
    except Exception as error:
        raise_if_from_handler(error)
        return None, error


#: Number of znodes that are deleted by one transaction, or listed in one round trip.
BATCH = 100

#: Number of transactions that are sent together.
TRANSACTIONS = 10

#: Number of times that a tree is listed, as other clients may add znodes in the meantime.
DELETE_ROUNDS = 30


#: The owner of a container, where an ephemeral znode has its session and others have 0.
CONTAINER_OWNER = -(2**63)


async def find_foreign_child(path: str, is_part: Callable[[str], bool]) -> str | None:
    """Return a child of ``path`` that is neither ephemeral nor a part of its object; None if there is none."""
    _, listing = await read_all(Sync(path), Children(path))
    names = [name for name in listing.names if not is_part(name)] if isinstance(listing, Listing) else []
    for start in range(0, len(names), BATCH):
        some = names[start : start + BATCH]
        for name, stat in zip(some, await read_all(*(Exists(f"{path}/{name}") for name in some)), strict=True):
            if stat is not None and stat.ephemeral_owner in (0, CONTAINER_OWNER):
                return name
    return None


async def remove_tree(path: str) -> None:
    """Delete ``path`` and all below it, for an object that no other process uses any more.

    Raise no error of the server, such as a denied access, and none of a deadline.
    """
    with suppress(DistsyncError):
        await remove_tree_by_deadline(path)


async def remove_tree_by_deadline(path: str) -> None:
    """Delete ``path`` and all below it like `remove_tree`, but raise the error of a deadline."""
    try:
        try:
            await read(Delete(path))
        except NotEmptyError:
            await delete_tree(path)
    except DistsyncError as error:
        is_late = isinstance(error, OutcomeUnknownError) and error.args[2] == "deadline"
        if is_late or isinstance(error, DeadlineError):
            raise


async def delete_tree(path: str, *with_root: SetData | Create | Delete, guard: Check | None = None) -> None:
    """Delete ``path`` and all below it, while other clients may use it.

    The last transaction deletes the root and the znodes next to it, so that no client finds a part
    of them. A tree that another client creates afterwards is not deleted, even if the reply was
    lost.

    Args:
        path: The root.
        *with_root: Operations with which the transaction that deletes the root begins.
        guard: What each transaction requires; None for nothing.

    Raises:
        NoNodeError: The guard was refused.
        NotEmptyError: Other clients keep adding znodes.
    """
    guards = () if guard is None else (guard,)
    czxid: int | None = None
    may_guess = True
    for _ in range(DELETE_ROUNDS):
        _, root = await read_all(Sync(path), Children(path))
        if not isinstance(root, Listing) or czxid not in (None, root.stat.czxid):
            return
        czxid = root.stat.czxid
        paths = await _list_tree(path, root, may_guess)
        transactions = [
            Multi((*guards, *(() if start else with_root), *map(Delete, reversed(paths[start : start + BATCH]))))
            for start in reversed(range(0, len(paths), BATCH))
        ]
        failed: list[Any] = []
        while transactions and not failed:
            replies = await Pipeline(*transactions[:TRANSACTIONS])
            del transactions[:TRANSACTIONS]
            failed = [reply for reply in replies if isinstance(reply, BaseException)]
        if not failed:
            return
        for error in failed:
            is_refused = guards and isinstance(error, NoNodeError) and getattr(error, "index", 0) == 0
            if is_refused or not isinstance(error, (NoNodeError, NotEmptyError, *INTERRUPTED)):
                raise error
            may_guess = may_guess and not isinstance(error, NotEmptyError)
        await Connected()
    raise NotEmptyError(path)


async def _list_tree(path: str, root: Listing, may_guess: bool) -> list[str]:
    """Return the paths of a znode and of all below it, parents first.

    With ``may_guess``, many siblings are taken for znodes without children, as the items of a queue
    are.
    """
    found, level, leaves = [path], [f"{path}/{name}" for name in root.names], list[str]()
    while level or leaves:
        parents, level = level, []
        found += leaves
        leaves = []
        for start in range(0, len(parents), BATCH):
            some = parents[start : start + BATCH]
            for parent, listing in zip(some, await read_all(*map(Children, some)), strict=True):
                if isinstance(listing, Listing):
                    found.append(parent)
                    kind = leaves if may_guess and len(listing.names) >= BATCH else level
                    kind += [f"{parent}/{name}" for name in listing.names]
    return found
