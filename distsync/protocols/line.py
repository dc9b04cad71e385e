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

from distsync.errors import DeadlineError, DistsyncError, NoNodeError, NumbersSpentError, SessionLostError
from distsync.protocols.guard import INTERRUPTED, ensure, lay, leave, read, read_all, remove, withdraw
from distsync.session.steps import (
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
    Watch,
    Woke,
)

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


class Contender(NamedTuple):
    """A child that stands in the line."""

    name: str
    number: int
    mark: str


class Place(NamedTuple):
    """Our own contender: where it stands, its czxid, and the session that it belongs to; ``alone`` if nobody else stood
    there when it came."""

    directory: str
    name: str
    token: int
    session_id: int
    alone: bool = False

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"


class Standing(enum.Enum):
    """Our contender is ..."""

    HELD = "at the front"
    BEHIND = "behind somebody"
    GONE = "not in the line"


class Verdict(NamedTuple):
    """What the listing says, and whom to wait for."""

    standing: Standing
    behind: str = ""


def parse(name: str) -> Contender | None:
    """The contender of this name; None for a child that is none."""
    marked = _MARKED.search(name, max(0, len(name) - _TAIL))
    if marked:
        return Contender(name, int(marked[2]), marked[1])
    foreign = _FOREIGN.search(name)
    return Contender(name, int(foreign[foreign.lastgroup or 0]), "") if foreign else None


def offset(number: int, base: int) -> int:
    """How far ``number`` is behind ``base``: sequence numbers wrap at 32 bits."""
    return (number - base + HALF) % (2 * HALF) - HALF


def in_order(names: Iterable[str]) -> list[Contender]:
    """The contenders, first in line first."""
    contenders = [contender for contender in map(parse, names) if contender]
    if not contenders:
        return []
    numbers = [contender.number for contender in contenders]
    if max(numbers) - min(numbers) < HALF:  # nothing has wrapped: the same order, for less
        return sorted(contenders, key=attrgetter("number", "name"))
    base = numbers[0]
    return sorted(contenders, key=lambda contender: (offset(contender.number, base), contender.name))


def ahead_of(names: Iterable[str], mine: str) -> list[Contender] | None:
    """Who stands ahead of ``mine``, in order; None if ``mine`` is not among them."""
    ahead: list[Contender] = []
    for contender in in_order(names):
        if contender.name == mine:
            return ahead
        ahead.append(contender)
    return None


Rule = Callable[[Contender], bool]


def exclusive(ahead: Contender) -> bool:
    """Everybody ahead keeps us out (Locks, step 3)."""
    return True


def shared(ahead: Contender) -> bool:
    """A reader is kept out by writers only (Shared Locks); a contender of unknown kind counts as a writer."""
    return ahead.mark not in (READ, KAZOO_READ)


def front(order: Iterable[Contender]) -> list[Contender]:
    """Those of the line, given in order, who hold: the first, and if it is a reader all readers up to a writer."""
    holders: list[Contender] = []
    for contender in order:
        if holders and (shared(contender) or shared(holders[0])):
            break
        holders.append(contender)
    return holders


def spelled(guid: str, mark: str) -> tuple[str, str]:
    """The name of a contender up to its sequence number, and the GUID as it stands in there."""
    if mark in (KAZOO_LOCK, KAZOO_READ):
        guid = guid.replace("-", "")
        return f"{guid}{mark}", guid
    return f"_c_{guid}{mark}", guid


def decide(names: Iterable[str], mine: str, rule: Rule = exclusive) -> Verdict:
    """Whether we hold, and else the nearest one ahead that keeps us out."""
    ahead = ahead_of(names, mine)
    if ahead is None:
        return Verdict(Standing.GONE)
    blockers = [contender for contender in ahead if rule(contender)]
    return Verdict(Standing.BEHIND, blockers[-1].name) if blockers else Verdict(Standing.HELD)


class Stood(NamedTuple):
    """Our new place, and the answers to the reads sent with its creation (exceptions in their place)."""

    place: Place
    answers: tuple[Any, ...]


async def container(directory: str) -> None:
    """The line's own znode is there; it goes by itself some time after its last contender."""
    await ensure(directory, container=True)


async def never_served(directory: str, guid: str) -> Place | None:
    """In most lines nobody but ourselves takes a contender out."""
    return None


def withdrawing(directory: str, guid: str, error: BaseException | None) -> Coroutine[Any, Any, None]:
    """In most lines nobody minds why."""
    return withdraw(directory, guid)


async def stand(
    directory: str,
    mark: str,
    data: bytes,
    *reads: Request[Any],
    parents: Callable[[str], Awaitable[None]] = container,
    served: Callable[[str, str], Awaitable[Place | None]] = never_served,
    withdraws: Callable[[str, str, BaseException | None], Coroutine[Any, Any, None]] = withdrawing,
) -> Stood:
    """Locks, step 1: we stand in the line. The reads go out with the create, so their answers include us.

    ``parents`` makes the directory when it is not there; ``served(directory, guid)`` knows of a contender that was
    taken out of the line by others before we heard that it stood there; ``withdraws(directory, guid, error)`` takes out
    one of which we have not heard, when the call ends with ``error``, or (None) goes on with another one.

    Each attempt has a GUID of its own; after a lost reply our znode is looked for by it, and is ours only if
    the present session owns it. Whatever interrupts this, no contender stays behind.
    """
    while True:
        await Connected()
        prefix, guid = spelled(await Guid(), mark)
        try:
            create = Create(f"{directory}/{prefix}", data, ephemeral=True, sequence=True)
            created, *answers = await Together(create, *reads)
            if isinstance(created, Created) and created.stat is not None:
                name = created.path.rpartition("/")[2]
                place = Place(directory, name, created.stat.czxid, created.stat.ephemeral_owner)
                await numbered(place)
                return Stood(place, tuple(answers))
            if isinstance(created, INTERRUPTED):
                found = await find(directory, guid) or await served(directory, guid)
                if found:
                    await numbered(found)
                    return Stood(found, tuple(await Together(*reads)) if reads else ())
                await Background(withdraws(directory, guid, None))
                continue
            if not isinstance(created, NoNodeError):
                raise created
        except BaseException as error:
            await Background(withdraws(directory, guid, error))
            raise
        await parents(directory)


async def numbered(place: Place) -> None:
    """Raises NumbersSpentError where what comes later may have the same number, or a smaller one: a server that was to
    count beyond the last number may not, and stays there (ZooKeeper 3.8 and 3.9; its documentation says otherwise)."""
    contender = parse(place.name)
    if contender is None or 0 <= contender.number < LAST:
        return
    stat = await read(Exists(place.directory))
    # what the server tells is twice its counter, less the children that are there
    if stat is not None and (stat.cversion + stat.num_children - 2 * LAST) % (2 * HALF) == 0:
        raise NumbersSpentError(place.directory)


async def find(directory: str, guid: str) -> Place | None:
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
            await lay(f"{directory}/{names[0]}")
            return None
        return Place(directory, names[0], stat.czxid, session.session_id)


async def still(place: Place) -> None:
    """Raises SessionLostError when the session of ``place`` is over. Asked after a watch was armed: it was armed in
    that session, or has fired."""
    if (await Connected()).session_id != place.session_id:
        raise SessionLostError(f"waiting in {place.directory}")


async def look(place: Place, *reads: Request[Any]) -> tuple[Any, ...]:
    """Answers to reads that may be concluded from: our session is the same, and it provably lives, for a while yet:
    what is held from then on is not lost before the keeper's first proof.

    Raises SessionLostError when the session of ``place`` is over.
    """
    while True:
        await still(place)
        if await Proven(place.session_id, fresh=True):
            answers = await Together(*reads)
        else:
            _, *rest = await Together(Sync(place.directory), *reads)
            answers = tuple(rest)
        if not any(isinstance(answer, INTERRUPTED) for answer in answers):
            await still(place)
            return answers


async def reach_front(place: Place, listing: Any, rule: Rule = exclusive) -> Standing:
    """Locks, steps 2 to 5: HELD once nobody ahead keeps us out, BEHIND at the deadline, GONE without our znode."""
    while True:
        if isinstance(listing, NoNodeError):
            return Standing.GONE
        if isinstance(listing, BaseException) or not await Proven(place.session_id):
            (listing,) = await look(place, Children(place.directory))
            if isinstance(listing, DistsyncError) and not isinstance(listing, NoNodeError):
                raise listing
            continue
        verdict = decide(listing.names, place.name, rule)
        if verdict.standing is not Standing.BEHIND:
            return verdict.standing
        if await gone(place, verdict.behind) is Woke.DEADLINE:
            return Standing.BEHIND
        (listing,) = await look(place, Children(place.directory))


async def gone(place: Place, behind: str) -> Woke:
    """Locks, steps 4 and 5, by getData: it leaves no watch behind on a znode that is not there."""
    watch = Watch()
    try:
        await GetData(f"{place.directory}/{behind}", watch)
    except (NoNodeError, *INTERRUPTED):
        return Woke.SIGNAL
    await still(place)
    return await Wait(watch)


async def acquire(directory: str, mark: str, data: bytes, rule: Rule = exclusive) -> Place | None:
    """A place at the front of the line; None at the deadline, and then no znode is left."""
    while True:
        try:
            place, (listing,) = await stand(directory, mark, data, Children(directory))
        except DeadlineError:
            return None
        standing = Standing.GONE
        try:
            standing = await reach_front(place, listing, rule)
        except SessionLostError:
            continue
        except DeadlineError:
            await Background(remove(place.path, place.session_id))
            return None
        except BaseException:
            await Background(remove(place.path, place.session_id))
            raise
        if standing is Standing.HELD:
            return place._replace(alone=getattr(listing, "names", ()) == (place.name,))
        if standing is Standing.BEHIND:
            await leave(place.path, place.session_id)
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
        if order and isinstance(nodes[0], NoNodeError) and order[0].mark in (WRITE, KAZOO_LOCK):
            continue  # a writer that may read now, by a znode that was not there yet
        return [(path, node) for path, node in zip(paths, nodes, strict=True) if isinstance(node, Node)]
