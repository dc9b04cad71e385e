"""One line for everything: contenders as ephemeral sequential znodes, and waiting without a herd.

Source: recipes.txt, "Locks" (steps 1 to 5), "Recoverable Errors and the GUID", "Shared Locks".

Rules for this file: pure. Deciding (``decide``) never awaits; standing, looking and leaving never decide.

The names are the recipe's in Curator's spelling, ``_c_<guid>-lock-<sequence>``, or, where asked for, in kazoo's,
``<guid in hex>__lock__<sequence>``. Every child whose name ends in a sequence number counts as a contender, whoever
made it; other children do not.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from operator import attrgetter
from typing import Any, NamedTuple

from distsync._protocols.retries import (
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
    Exists,
    GetData,
    Guid,
    Node,
    Proven,
    Request,
    Sync,
    Together,
    Wait,
    WakeReason,
    Watch,
)
from distsync.errors import DeadlineError, DistsyncError, NoNodeError, SequenceExhaustedError, SessionLostError

LOCK = "-lock-"
READ = "-__READ__"
WRITE = "-__WRIT__"
LATCH = "-latch-"

KAZOO_LOCK = "__lock__"
KAZOO_READ = "__rlock__"

#: Of all the sequence numbers there are, and the greatest.
HALF = 0x80000000
LAST = HALF - 1

# A sequence number is printed with %010d; a negative one (the counter has overflowed) with its sign. Behind a mark that
# we know that is clear; elsewhere a single dash before ten digits separates, and a dash before nine is a sign.
_MARKED = re.compile(r"(-lock-|-latch-|-__READ__|-__WRIT__|__lock__|__rlock__)(\d{10}|-\d{9,10})$")
# No mark begins further ahead; to look for one there takes seven times as long.
_TAIL = len("__rlock__") + len("-2147483648")
_FOREIGN = re.compile(r"(?:(?<=-)(?P<far>-\d{9,10})|(?P<number>\d{10})|(?P<near>(?<!-)-\d{9}))$")


class ContenderNode(NamedTuple):
    """A child that stands in the line."""

    name: str
    number: int
    name_suffix: str


class QueueEntry(NamedTuple):
    """Our own contender: where it stands, its czxid, and the session that it belongs to; ``is_sole_contender`` if
    nobody else stood there when it came."""

    directory: str
    name: str
    token: int
    session_id: int
    is_sole_contender: bool = False

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"


class QueueState(enum.Enum):
    """Our contender is ..."""

    HELD = "at the front"
    BEHIND = "behind somebody"
    GONE = "not in the line"


class QueueDecision(NamedTuple):
    """What the listing says, and whom to wait for."""

    state: QueueState
    behind: str = ""


def parse(name: str) -> ContenderNode | None:
    """The contender of this name; None for a child that is none."""
    marked = _MARKED.search(name, max(0, len(name) - _TAIL))
    if marked:
        return ContenderNode(name, int(marked[2]), marked[1])
    foreign = _FOREIGN.search(name)
    return ContenderNode(name, int(foreign[foreign.lastgroup or 0]), "") if foreign else None


def sequence_distance(number: int, base: int) -> int:
    """How far ``number`` is behind ``base``: sequence numbers wrap at 32 bits."""
    return (number - base + HALF) % (2 * HALF) - HALF


def in_order(names: Iterable[str]) -> list[ContenderNode]:
    """The contenders, first in line first."""
    contenders = [contender for contender in map(parse, names) if contender]
    if not contenders:
        return []
    numbers = [contender.number for contender in contenders]
    if max(numbers) - min(numbers) < HALF:  # nothing has wrapped: the same order, for less
        return sorted(contenders, key=attrgetter("number", "name"))
    base = numbers[0]
    return sorted(contenders, key=lambda contender: (sequence_distance(contender.number, base), contender.name))


def predecessors(names: Iterable[str], mine: str) -> list[ContenderNode] | None:
    """Who stands ahead of ``mine``, in order; None if ``mine`` is not among them."""
    ahead: list[ContenderNode] = []
    for contender in in_order(names):
        if contender.name == mine:
            return ahead
        ahead.append(contender)
    return None


Rule = Callable[[ContenderNode], bool]


def exclusive(ahead: ContenderNode) -> bool:
    """Everybody ahead keeps us out (Locks, step 3)."""
    return True


def shared(ahead: ContenderNode) -> bool:
    """A reader is kept out by writers only (Shared Locks); a contender of unknown kind counts as a writer."""
    return ahead.name_suffix not in (READ, KAZOO_READ)


def current_holders(order: Iterable[ContenderNode]) -> list[ContenderNode]:
    """Those of the line, given in order, who hold: the first, and if it is a reader all readers up to a writer."""
    holders: list[ContenderNode] = []
    for contender in order:
        if holders and (shared(contender) or shared(holders[0])):
            break
        holders.append(contender)
    return holders


def node_name(guid: str, name_suffix: str) -> tuple[str, str]:
    """The name of a contender up to its sequence number, and the GUID as it stands in there."""
    if name_suffix in (KAZOO_LOCK, KAZOO_READ):
        guid = guid.replace("-", "")
        return f"{guid}{name_suffix}", guid
    return f"_c_{guid}{name_suffix}", guid


def decide(names: Iterable[str], mine: str, rule: Rule = exclusive) -> QueueDecision:
    """Whether we hold, and else the nearest one ahead that keeps us out."""
    ahead = predecessors(names, mine)
    if ahead is None:
        return QueueDecision(QueueState.GONE)
    blockers = [contender for contender in ahead if rule(contender)]
    return QueueDecision(QueueState.BEHIND, blockers[-1].name) if blockers else QueueDecision(QueueState.HELD)


class Enqueued(NamedTuple):
    """Our new place, and the answers to the reads sent with its creation (exceptions in their place)."""

    place: QueueEntry
    answers: tuple[Any, ...]


async def ensure_container(directory: str) -> None:
    """The line's own znode is there; it goes by itself some time after its last contender."""
    await ensure(directory, container=True)


async def never_granted(directory: str, guid: str) -> QueueEntry | None:
    """In most lines nobody but ourselves takes a contender out."""
    return None


def cancel_create(directory: str, guid: str, error: BaseException | None) -> Coroutine[Any, Any, None]:
    """In most lines nobody minds why."""
    return cancel_pending_create(directory, guid)


async def enqueue(
    directory: str,
    name_suffix: str,
    contender_data: bytes,
    *with_reads: Request[Any],
    parents: Callable[[str], Awaitable[None]] = ensure_container,
    find_granted: Callable[[str, str], Awaitable[QueueEntry | None]] = never_granted,
    cancel: Callable[[str, str, BaseException | None], Coroutine[Any, Any, None]] = cancel_create,
) -> Enqueued:
    """Locks, step 1: we stand in the line. The reads go out with the create, so their answers include us.

    ``parents`` makes the directory when it is not there; ``find_granted(directory, guid)`` knows of a contender that
    was taken out of the line by others before we heard that it stood there; ``cancel(directory, guid, error)`` takes
    out one of which we have not heard, when the call ends with ``error``, or (None) goes on with another one.

    Each attempt has a GUID of its own; after a lost reply our znode is looked for by it, and is ours only if
    the present session owns it. Whatever interrupts this, no contender stays behind.
    """
    while True:
        await Connected()
        prefix, guid = node_name(await Guid(), name_suffix)
        try:
            create = Create(f"{directory}/{prefix}", contender_data, ephemeral=True, sequence=True)
            created, *answers = await Together(create, *with_reads)
            if isinstance(created, Created) and created.stat is not None:
                name = created.path.rpartition("/")[2]
                place = QueueEntry(directory, name, created.stat.czxid, created.stat.ephemeral_owner)
                await check_sequence(place)
                return Enqueued(place, tuple(answers))
            if isinstance(created, INTERRUPTED):
                found = await find(directory, guid) or await find_granted(directory, guid)
                if found:
                    await check_sequence(found)
                    return Enqueued(found, tuple(await Together(*with_reads)) if with_reads else ())
                await Background(cancel(directory, guid, None))
                continue
            if not isinstance(created, NoNodeError):
                raise created
        except BaseException as error:
            await Background(cancel(directory, guid, error))
            raise
        await parents(directory)


async def check_sequence(place: QueueEntry) -> None:
    """Raises SequenceExhaustedError where what comes later may have the same number, or a smaller one: a server that
    was to count beyond the last number may not, and stays there (ZooKeeper 3.8 and 3.9; its documentation says
    otherwise)."""
    contender = parse(place.name)
    if contender is None or 0 <= contender.number < LAST:
        return
    stat = await read(Exists(place.directory))
    # what the server tells is twice its counter, less the children that are there
    if stat is not None and (stat.cversion + stat.num_children - 2 * LAST) % (2 * HALF) == 0:
        raise SequenceExhaustedError(place.directory)


async def find(directory: str, guid: str) -> QueueEntry | None:
    """Recoverable Errors and the GUID: our znode, if the create whose answer was lost took place. It was sent in the
    present session or in an earlier one, whose znode goes before we stand there with another one."""
    while True:
        session = await Connected()
        _, listing = await Together(Sync(directory), Children(directory))
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


async def check_session(place: QueueEntry) -> None:
    """Raises SessionLostError when the session of ``place`` is over. Asked after a watch was armed: it was armed in
    that session, or has fired."""
    if (await Connected()).session_id != place.session_id:
        raise SessionLostError(f"waiting in {place.directory}")


async def read_consistent(place: QueueEntry, *with_reads: Request[Any]) -> tuple[Any, ...]:
    """Answers to reads that may be concluded from: our session is the same, and it provably lives, for a while yet:
    what is held from then on is not lost before the keeper's first proof.

    Raises SessionLostError when the session of ``place`` is over.
    """
    while True:
        await check_session(place)
        if await Proven(place.session_id, fresh=True):
            answers = await Together(*with_reads)
        else:
            _, *rest = await Together(Sync(place.directory), *with_reads)
            answers = tuple(rest)
        if not any(isinstance(answer, INTERRUPTED) for answer in answers):
            await check_session(place)
            return answers


async def wait_for_turn(place: QueueEntry, listing: Any, rule: Rule = exclusive) -> QueueState:
    """Locks, steps 2 to 5: HELD once nobody ahead keeps us out, BEHIND at the deadline, GONE without our znode."""
    while True:
        if isinstance(listing, NoNodeError):
            return QueueState.GONE
        if isinstance(listing, BaseException) or not await Proven(place.session_id):
            (listing,) = await read_consistent(place, Children(place.directory))
            if isinstance(listing, DistsyncError) and not isinstance(listing, NoNodeError):
                raise listing
            continue
        state = decide(listing.names, place.name, rule)
        if state.state is not QueueState.BEHIND:
            return state.state
        if await wait_until_deleted(place, state.behind) is WakeReason.DEADLINE:
            return QueueState.BEHIND
        (listing,) = await read_consistent(place, Children(place.directory))


async def wait_until_deleted(place: QueueEntry, behind: str) -> WakeReason:
    """Locks, steps 4 and 5, by getData: it leaves no watch behind on a znode that is not there."""
    watch = Watch()
    try:
        await GetData(f"{place.directory}/{behind}", watch)
    except (NoNodeError, *INTERRUPTED):
        return WakeReason.SIGNAL
    await check_session(place)
    return await Wait(watch)


async def acquire(directory: str, name_suffix: str, contender_data: bytes, rule: Rule = exclusive) -> QueueEntry | None:
    """A place at the front of the line; None at the deadline, and then no znode is left."""
    while True:
        try:
            place, (listing,) = await enqueue(directory, name_suffix, contender_data, Children(directory))
        except DeadlineError:
            return None
        state = QueueState.GONE
        try:
            state = await wait_for_turn(place, listing, rule)
        except SessionLostError:
            continue
        except DeadlineError:
            await Background(delete_until_session_ends(place.path, place.session_id))
            return None
        except BaseException:
            await Background(delete_until_session_ends(place.path, place.session_id))
            raise
        if state is QueueState.HELD:
            return place._replace(is_sole_contender=getattr(listing, "names", ()) == (place.name,))
        if state is QueueState.BEHIND:
            await delete_own(place.path, place.session_id)
            return None


async def contenders(directory: str) -> list[tuple[str, Node]]:
    """Path and znode of everybody in the line, first in line first."""
    while True:
        try:
            listing = await read(Children(directory))
        except NoNodeError:
            return []
        order = in_order(listing.names)
        paths = [f"{directory}/{contender.name}" for contender in order]
        nodes = await read_all(*map(GetData, paths)) if paths else ()
        if order and isinstance(nodes[0], NoNodeError) and order[0].name_suffix in (WRITE, KAZOO_LOCK):
            continue  # a writer that may read now, by a znode that was not there yet
        return [(path, node) for path, node in zip(paths, nodes, strict=True) if isinstance(node, Node)]
