"""Wait queue: contenders are ephemeral sequential znodes, and wait without a herd effect.

Source: ZooKeeper recipes, "Locks" (steps 1 to 5), "Recoverable Errors and the GUID", "Shared
Locks".

A contender is named ``_c_<guid>-lock-<sequence>``, as in the recipe and in Curator, or
optionally ``<guid in hex>__lock__<sequence>``, as in kazoo. Every child whose name ends in a
sequence number counts as a contender, whichever client created it. Other children are
ignored.

Deciding is separate from waiting: `decide` is a pure function of a listing.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from distsync._protocols.retries import (
    BATCH,
    INTERRUPTED,
    cancel_pending_create,
    delete_guaranteed,
    delete_own,
    delete_until_session_ends,
    ensure,
    read,
    read_all,
)
from distsync._protocols.steps import (
    Background,
    Children,
    Connected,
    Create,
    Created,
    Delete,
    Exists,
    GetData,
    Guid,
    Listing,
    Multi,
    Node,
    Pipeline,
    Request,
    SessionAlive,
    SetData,
    Stat,
    Sync,
    Wait,
    WakeReason,
    Watch,
)
from distsync._signal_handlers import is_interrupt, raise_if_from_handler
from distsync.errors import DeadlineError, DistsyncError, NoNodeError, SequenceExhaustedError, SessionLostError

LOCK = "-lock-"
READ = "-__READ__"
WRITE = "-__WRIT__"
LATCH = "-latch-"

KAZOO_LOCK = "__lock__"
KAZOO_READ = "__rlock__"

#: Half the range of sequence numbers, which wrap at 32 bits, and the largest one.
HALF = 0x80000000
LAST = HALF - 1

# The server formats sequence numbers with %010d, so they have a minus sign once the counter
# has overflowed. After a known suffix that is unambiguous. After anything else, a single dash
# is a separator before ten digits, and a minus sign before nine.
_KNOWN_SUFFIX = re.compile(r"(-lock-|-latch-|-__READ__|-__WRIT__|__lock__|__rlock__)(\d{10}|-\d{9,10})$")
# Length of the longest suffix and number. Searching whole names takes seven times as long.
_MAX_SUFFIX_LENGTH = len("__rlock__") + len("-2147483648")
_FOREIGN = re.compile(r"(?:(?<=-)(?P<far>-\d{9,10})|(?P<number>\d{10})|(?P<near>(?<!-)-\d{9}))$")


class ContenderNode(NamedTuple):
    """A child of the directory that takes part in the queue.

    Attributes:
        name: Name of the znode.
        number: Sequence number.
        name_suffix: Part of the name that denotes the kind of contender, such as ``-lock-``;
            empty if unknown.
    """

    name: str
    number: int
    name_suffix: str


class QueueEntry(NamedTuple):
    """Our own contender.

    Attributes:
        directory: Path of the queue.
        name: Name of the znode.
        token: Its czxid, which serves as fencing token.
        session_id: The session that owns it.
        is_sole_contender: Whether the queue was otherwise empty when it was enqueued.
        is_successor: Whether it was granted because its only predecessor was deleted, without another
            request.
    """

    directory: str
    name: str
    token: int
    session_id: int
    is_sole_contender: bool = False
    is_successor: bool = False

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"


class QueueState(enum.Enum):
    """Our contender is ..."""

    HELD = "not blocked by another contender"
    BEHIND = "behind another contender"
    GONE = "not in the queue"
    SUCCESSOR = "not blocked, because the only one ahead was deleted"


class QueueDecision(NamedTuple):
    """Our state, and the name of the contender to wait for if we are BEHIND it.

    With ``is_next``, it is the only contender that blocks ours.
    """

    state: QueueState
    behind: str = ""
    is_next: bool = False


def parse(name: str) -> ContenderNode | None:
    """Parse the name of a child. Return None if it is not a contender."""
    known = _KNOWN_SUFFIX.search(name, max(0, len(name) - _MAX_SUFFIX_LENGTH))
    if known:
        return ContenderNode(name, int(known[2]), known[1])
    foreign = _FOREIGN.search(name)
    return ContenderNode(name, int(foreign[foreign.lastgroup or 0]), "") if foreign else None


def sequence_distance(number: int, base: int) -> int:
    """Return how far ``number`` comes after ``base``, given that numbers wrap at 32 bits."""
    return (number - base + HALF) % (2 * HALF) - HALF


def in_order(names: Iterable[str]) -> list[ContenderNode]:
    """Return the contenders among ``names``, in queue order."""
    contenders = [contender for name in names if (contender := parse(name))]  # map() would end at a StopIteration
    if not contenders:
        return []
    numbers = [contender.number for contender in contenders]
    if max(numbers) - min(numbers) < HALF:  # no number has wrapped: sort faster, with the same result
        return sorted(contenders, key=attrgetter("number", "name"))
    base = numbers[0]
    return sorted(contenders, key=lambda contender: (sequence_distance(contender.number, base), contender.name))


def predecessors(names: Iterable[str], mine: str) -> list[ContenderNode] | None:
    """Return the contenders ahead of ``mine``, in queue order, or None if ``mine`` is missing."""
    ahead: list[ContenderNode] = []
    for contender in in_order(names):
        if contender.name == mine:
            return ahead
        ahead.append(contender)
    return None


#: Whether a contender ahead of ours blocks it.
Rule = Callable[[ContenderNode], bool]


def any_contender(ahead: ContenderNode) -> bool:
    """Return True: every contender ahead blocks ours ("Locks", step 3)."""
    return True


def is_writer(ahead: ContenderNode) -> bool:
    """Return whether a contender is a writer, which blocks readers ("Shared Locks"). Unknown ones count as writers."""
    return ahead.name_suffix not in (READ, KAZOO_READ)


def current_holders(order: Iterable[ContenderNode]) -> list[ContenderNode]:
    """Return the holders: the first contender and, if it reads, all readers before a writer."""
    holders: list[ContenderNode] = []
    for contender in order:
        if holders and (is_writer(contender) or is_writer(holders[0])):
            break
        holders.append(contender)
    return holders


def node_name(guid: str, name_suffix: str) -> tuple[str, str]:
    """Return a contender's name up to its sequence number, and the GUID as spelled in it."""
    if name_suffix in (KAZOO_LOCK, KAZOO_READ):
        guid = guid.replace("-", "")
        return f"{guid}{name_suffix}", guid
    return f"_c_{guid}{name_suffix}", guid


def decide(names: Iterable[str], mine: str, rule: Rule = any_contender) -> QueueDecision:
    """Decide whether it is our turn and, if not, which contender to wait for.

    That is the nearest contender ahead that blocks ours: waiting for it alone avoids the herd
    effect.
    """
    ahead = predecessors(names, mine)
    if ahead is None:
        return QueueDecision(QueueState.GONE)
    blockers = [contender for contender in ahead if rule(contender)]
    if not blockers:
        return QueueDecision(QueueState.HELD)
    return QueueDecision(QueueState.BEHIND, blockers[-1].name, len(blockers) == 1)


class Enqueued(NamedTuple):
    """Our new contender, and the replies to the reads sent with its creation.

    A read that failed has its exception in place of the reply. With a counter, the first reply is its
    Stat; None if the reply to the create was lost.
    """

    entry: QueueEntry
    replies: tuple[Any, ...]


#: Waits for the deletion of the contender of this name, or for the deadline, as `wait_until_deleted` does.
WaitForDeletion = Callable[[QueueEntry, str], Awaitable[tuple[WakeReason, bool]]]

#: A clean-up for the background.
CleanUp = Coroutine[Any, Any, None] | Callable[[], Coroutine[Any, Any, None]]


async def ensure_container(directory: str) -> None:
    """Create the directory as a container, which the server deletes after its last child."""
    await ensure(directory, container=True)


async def ensure_container_in_container(directory: str) -> None:
    """Create the directory as a container, and so its parent, which the server then deletes, too."""
    await ensure(directory, container=True, container_parents=1)


async def never_granted(directory: str, guid: str) -> QueueEntry | None:
    """Return None: the default for queues in which no other process removes our contender."""
    return None


def cancel_create(directory: str, guid: str, error: BaseException | None) -> Callable[[], Coroutine[Any, Any, None]]:
    """Delete the contender if it was created, regardless of ``error``."""
    return partial(cancel_pending_create, directory, guid)


async def enqueue(
    directory: str,
    name_suffix: str,
    contender_data: bytes,
    *reads: Request[Any],
    ensure_directory: Callable[[str], Awaitable[None]] = ensure_container,
    find_granted: Callable[[str, str], Awaitable[QueueEntry | None]] = never_granted,
    cancel: Callable[[str, str, BaseException | None], CleanUp] = cancel_create,
    counter: str = "",
) -> Enqueued:
    """Enqueue a contender ("Locks", step 1).

    Each attempt has its own GUID. If the reply to the create is lost, the contender is searched
    for by its GUID, and is ours only if the current session owns it. If interrupted, no
    contender is left behind.

    Args:
        directory: Path of the queue.
        name_suffix: Part of the name that denotes the kind of contender, such as ``-lock-``.
        contender_data: Data of the znode.
        *reads: Reads to send right after the create, so that their replies include our
            contender.
        ensure_directory: Creates the directory if it does not exist.
        find_granted: ``find_granted(directory, guid)`` returns a contender that another process
            granted, and removed from the queue, before we learned that it had been created.
        cancel: ``cancel(directory, guid, error)`` deletes a contender that may have been
            created. ``error`` ended the call; None if another attempt follows.
        counter: Path of a znode that counts the contenders ever created; empty if none does. See
            `creations`.

    Returns:
        Our contender, and the replies to ``reads``.

    Raises:
        SequenceExhaustedError: The server has run out of sequence numbers.
    """
    while True:
        session_id = (await Connected()).session_id
        prefix, guid = node_name(await Guid(), name_suffix)
        try:
            create = Create(f"{directory}/{prefix}", contender_data, ephemeral=True, sequence=True)
            created, *replies = await _create(create, counter, session_id, reads)
            if isinstance(created, Created) and created.stat is not None:
                name = created.path.rpartition("/")[2]
                entry = QueueEntry(directory, name, created.stat.czxid, created.stat.ephemeral_owner)
                await check_sequence(entry)
                return Enqueued(entry, tuple(replies))
            if isinstance(created, INTERRUPTED):
                found = await find(directory, guid) or await find_granted(directory, guid)
                if found:
                    await check_sequence(found)
                    replies = list(await Pipeline(*reads)) if reads else []
                    return Enqueued(found, (None, *replies) if counter else tuple(replies))
                await Background(cancel(directory, guid, None))
                continue
            if not isinstance(created, NoNodeError):
                raise created
        except BaseException as error:
            await Background(cancel(directory, guid, error))
            raise
        await ensure_directory(directory)


async def _create(create: Create, counter: str, session_id: int, reads: tuple[Request[Any], ...]) -> tuple[Any, ...]:
    """Create a contender, and count it in the same transaction. Return the replies.

    The second one is the Stat of the counter, if any. A transaction does not return the Stat of the
    contender. If it was executed in a later session than ``session_id``, the contender counts as one
    of a session that has ended.
    """
    if not counter:
        return await Pipeline(create, *reads)
    one = f"{counter}/one"
    counting = (create, Create(one), Delete(one), SetData(counter))  # the last one returns the Stat
    reply, *replies = await Pipeline(Multi(counting), *reads)
    if not isinstance(reply, tuple):
        return reply, None, *replies
    stat: Stat = reply[-1]
    created = Created(reply[0].path, stat._replace(czxid=stat.mzxid, ephemeral_owner=session_id))
    return created, stat, *replies


def creations(stat: Stat) -> int:
    """Return how many children were ever created. It is the next sequence number.

    The reported cversion is twice this number, minus the number of children.
    """
    return (stat.cversion + stat.num_children) % (2 * HALF) // 2


async def check_sequence(entry: QueueEntry) -> None:
    """Raise SequenceExhaustedError if a later contender may get the same number.

    ZooKeeper 3.8 and 3.9 stop counting at the largest number, although their documentation
    says that it wraps.
    """
    contender = parse(entry.name)
    if contender is None or 0 <= contender.number < LAST:
        return
    stat = await read(Exists(entry.directory))
    if stat is not None and creations(stat) == LAST:
        raise SequenceExhaustedError(entry.directory)


async def find(directory: str, guid: str) -> QueueEntry | None:
    """Find the contender whose create was executed although its reply was lost.

    A contender of an earlier session is deleted instead, before the caller enqueues another one.

    Source: ZooKeeper recipes, "Recoverable Errors and the GUID".
    """
    while True:
        session = await Connected()
        _, listing = await Pipeline(Sync(directory), Children(directory))
        if isinstance(listing, INTERRUPTED):
            continue
        if isinstance(listing, NoNodeError):
            return None
        if isinstance(listing, DistsyncError):
            raise listing
        names = [name for name in listing.names if guid in name]
        if not names:
            return None
        stat = await read(Exists(f"{directory}/{names[0]}"))
        if stat is None:
            return None
        if stat.ephemeral_owner != session.session_id:
            await delete_guaranteed(f"{directory}/{names[0]}")
            return None
        return QueueEntry(directory, names[0], stat.czxid, session.session_id)


async def check_session(entry: QueueEntry) -> None:
    """Raise SessionLostError if the session of ``entry`` has ended.

    Call this after setting a watch: the watch then belongs to that session, or has fired.
    """
    if (await Connected()).session_id != entry.session_id:
        raise SessionLostError(f"the wait in {entry.directory}")


async def read_consistent(entry: QueueEntry, *reads: Request[Any]) -> tuple[Any, ...]:
    """Read with proof that our session is alive and has not changed.

    Without a fresh proof, a Sync is sent first. The proof lasts at least until the next heartbeat, so
    that a lock that is acquired on the basis of the replies is not lost before it. Raise
    SessionLostError if the session has ended.
    """
    while True:
        await check_session(entry)
        if await SessionAlive(entry.session_id, fresh=True):
            replies = await Pipeline(*reads)
        else:
            _, *rest = await Pipeline(Sync(entry.directory), *reads)
            replies = tuple(rest)
        if not any(isinstance(reply, INTERRUPTED) for reply in replies):
            await check_session(entry)
            return replies


async def wait_for_turn(
    entry: QueueEntry,
    listing: Any,
    rule: Rule = any_contender,
    proves_session: bool = False,
    wait: WaitForDeletion | None = None,
) -> QueueState:
    """Wait until no contender ahead blocks ours ("Locks", steps 2 to 5).

    Args:
        entry: Our contender.
        listing: The children of the directory, listed after ``entry`` was enqueued, or the
            error of that read.
        rule: Whether a contender ahead of ours blocks it.
        proves_session: Whether the caller, at our turn, sends a transaction that checks that our
            znode exists. The queue is then not read again if the only contender ahead was deleted.
        wait: Waits for the contender ahead instead of `wait_until_deleted`.

    Returns:
        HELD when it is our turn, BEHIND at the deadline, GONE if our znode was deleted. With
        ``proves_session``, SUCCESSOR if it is our turn and the queue was not read again.

    Raises:
        SessionLostError: The session of ``entry`` has ended.
    """
    while True:
        if isinstance(listing, NoNodeError):
            return QueueState.GONE
        if isinstance(listing, BaseException) or not await SessionAlive(entry.session_id):
            (listing,) = await read_consistent(entry, Children(entry.directory))
            if isinstance(listing, DistsyncError) and not isinstance(listing, NoNodeError):
                raise listing
            continue
        decision = decide(listing.names, entry.name, rule)
        if decision.state is not QueueState.BEHIND:
            return decision.state
        woke, is_deleted = await (wait or wait_until_deleted)(entry, decision.behind)
        if woke is WakeReason.DEADLINE:
            return QueueState.BEHIND
        if proves_session and is_deleted and decision.is_next:
            return QueueState.SUCCESSOR
        (listing,) = await read_consistent(entry, Children(entry.directory))


async def wait_until_deleted(entry: QueueEntry, behind: str) -> tuple[WakeReason, bool]:
    """Wait for the deletion of ``behind`` or for the deadline ("Locks", steps 4 and 5).

    Return why the wait ended, and whether ``behind`` is known to be deleted. Other events end the
    wait as well; the caller then has to read the queue again. The watch is set by getData, which
    unlike exists leaves no watch on a znode that is already deleted.
    """
    watch = Watch()
    try:
        await GetData(f"{entry.directory}/{behind}", watch)
    except NoNodeError:
        return WakeReason.SIGNAL, True
    except INTERRUPTED:
        return WakeReason.SIGNAL, False
    await check_session(entry)
    return await Wait(watch), watch.is_deleted


async def delete_predecessors(entry: QueueEntry) -> None:
    """Delete all contenders ahead of ours, whichever sessions own them, if ours is in the queue."""
    (listing,) = await read_consistent(entry, Children(entry.directory))
    ahead = (predecessors(listing.names, entry.name) if isinstance(listing, Listing) else None) or []
    for start in range(0, len(ahead), BATCH):
        await Pipeline(*(Delete(f"{entry.directory}/{each.name}") for each in ahead[start : start + BATCH]))


async def acquire(
    directory: str,
    name_suffix: str,
    contender_data: bytes,
    rule: Rule = any_contender,
    proves_session: bool = False,
    ensure_directory: Callable[[str], Awaitable[None]] = ensure_container,
) -> QueueEntry | None:
    """Enqueue and wait for our turn (`wait_for_turn`), or return None at the deadline.

    If the session ends or the znode is deleted, enqueue again. At the deadline or if
    interrupted, no znode is left behind.
    """
    while True:
        try:
            entry, (listing,) = await enqueue(
                directory, name_suffix, contender_data, Children(directory), ensure_directory=ensure_directory
            )
        except DeadlineError as error:
            raise_if_from_handler(error)
            return None
        state = QueueState.GONE
        try:
            state = await wait_for_turn(entry, listing, rule, proves_session)
        except SessionLostError:
            continue
        except BaseException as error:
            await Background(partial(delete_until_session_ends, entry.path, entry.session_id))
            if isinstance(error, DeadlineError) and not is_interrupt(error):
                return None
            raise
        if state is QueueState.SUCCESSOR:
            return entry._replace(is_successor=True)
        if state is QueueState.HELD:
            return entry._replace(is_sole_contender=getattr(listing, "names", ()) == (entry.name,))
        if state is QueueState.BEHIND:
            await delete_own(entry.path, entry.session_id)
            return None


async def contenders(directory: str) -> list[tuple[str, Node]]:
    """Return path and znode of each contender, in queue order."""
    while True:
        try:
            listing = await read(Children(directory))
        except NoNodeError:
            return []
        order = in_order(listing.names)
        paths = [f"{directory}/{contender.name}" for contender in order]
        nodes = await read_all(*map(GetData, paths)) if paths else ()
        if order and isinstance(nodes[0], NoNodeError) and order[0].name_suffix in (WRITE, KAZOO_LOCK):
            continue  # the writer may have become a reader, whose znode is not in this listing
        return [(path, node) for path, node in zip(paths, nodes, strict=True) if isinstance(node, Node)]
