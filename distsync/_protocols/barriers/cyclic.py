"""Barrier: cyclic, generation by generation; the last one to arrive opens it in one transaction.

Source: recipes.txt, "Double Barriers" (entering); stdlib ``threading.Barrier`` (cyclic, action, broken, reset).

Rules for this file: pure; a wake is a hint; what counts is whether our own znode still stands.

Who arrives stands in the line. The one with ``parties - 1`` ahead runs the action and then, in one transaction,
moves the generation on and deletes the znodes of all members: whose znode is gone while his session lives has
passed. Whoever breaks the barrier only says so, and each one waiting leaves by himself. A reset puts a mark of its own
into the line, in its transaction: those ahead of it are of a broken generation, and count no more. Then the number of
the mark goes into the data, and the mark goes.

Who has passed before he could look learns his index from the lists of the last members. Whose name is in none of
them was deleted by somebody else, or has slept through so many generations that nobody can know: for him it is broken.

Who leaves (a cancelled task) says so in the data, in the transaction that deletes his znode: those who have counted on
him wait on for another one.

Who gives up without a connection breaks the barrier, and leaves, when there is one again; who comes anew in his process
waits for that. Until then his znode counts for the others, as long as his session lives. Who never came to stand there
breaks the generation that his process knows; a later one belongs to those who have moved the barrier on meanwhile. Who
did, and did not hear of it, breaks the one that he stands in.

Picture: ``<path>``                            data = ``{"parties": n, "generation": g, "broken": bool, "after": s,
                                               "passed": [[names of a generation that passed], ...], "left": [names]}``
         ``<path>/_c_<guid>-lock-<sequence>``  ephemeral, one a party that waits
         ``<path>/_r_<guid>-reset-<sequence>`` ephemeral, for a moment: the mark of a reset
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from distsync._protocols.barriers.cyclic_records import RESET, BarrierGeneration, BarrierSnapshot, Waiter, turn_in
from distsync._protocols.receipts import Receipts, raise_deadline
from distsync._protocols.retries import (
    INTERRUPTED,
    DeferredWork,
    cancel_pending_create,
    delete_guaranteed,
    ensure,
    raise_first,
    read,
    read_all,
)
from distsync._protocols.steps import (
    Background,
    Call,
    Children,
    Connected,
    Create,
    Delete,
    GetData,
    Guid,
    Listing,
    Node,
    SetData,
    Sync,
    Together,
    Wait,
    WakeReason,
    Watch,
)
from distsync._protocols.wait_queue import LOCK, QueueEntry, enqueue, in_order, read_consistent
from distsync.errors import (
    BadVersionError,
    BrokenBarrierError,
    DeadlineError,
    DistsyncError,
    MismatchError,
    NoNodeError,
    OutcomeUnknownError,
    SessionLostError,
)


class BarrierCore:
    """What the threads of one process know together about one barrier."""

    def __init__(self, path: str, parties: int, receipts: Receipts) -> None:
        self.path = path
        self.parties = parties
        self.receipts = receipts
        self.generation = 0
        """The latest that anybody here has seen."""
        self.agreed = False
        """The others ask for as many as we do: who asks for another number must not stand there, and be counted."""
        self.unfinished = DeferredWork()
        """The leaving of those who gave up: who comes anew must not be counted beside them."""

    async def _parents(self, directory: str) -> None:
        await ensure(directory, BarrierGeneration(self.parties).data())
        await self._agree()

    async def _agree(self) -> None:
        """Raises MismatchError."""
        with suppress(NoNodeError):
            self._turn(await read(GetData(self.path)))

    async def wait(
        self, contender_data: bytes, action: Callable[[], Any] | None = None, on_cancel_leave: bool = False
    ) -> int:
        """All parties are here. Returns our index, 0 to parties - 1, another one for each.

        Raises BrokenBarrierError when the barrier is or becomes broken; our deadline breaks it for all. An
        interrupted caller leaves as if it had not come if ``on_cancel_leave``, and otherwise breaks the barrier for
        all; also without a connection.
        """
        watch, asked = Watch(), list[str]()
        reads = (Children(self.path), GetData(self.path, watch))

        def withdraws(directory: str, guid: str, error: BaseException | None) -> Coroutine[Any, Any, None]:
            asked.append(guid)
            if isinstance(error, DeadlineError):
                return self.unfinished.deferred(partial(self._break_after_lost_reply, guid))
            return self.unfinished.deferred(
                partial(self._leave, guid) if on_cancel_leave else partial(cancel_pending_create, directory, guid)
            )

        try:
            await self.unfinished.finish()
            if not self.agreed:
                await self._agree()
            served = partial(self._passed, self.generation)
            place, answers = await enqueue(
                self.path, LOCK, contender_data, *reads, parents=self._parents, find_granted=served, cancel=withdraws
            )
        except DeadlineError:  # whoever has reset it meanwhile does not count on us
            await self.unfinished.defer(partial(self._break, BarrierGeneration(self.parties, self.generation), True))
            raise BrokenBarrierError from None
        except BaseException:
            if on_cancel_leave and asked:
                await self._leave_before_end(asked[-1])
            raise
        party = Waiter(place)
        try:
            return await self._wait_for_release(party, answers, watch, action)
        except BaseException as error:
            gives_up = isinstance(error, (DeadlineError, SessionLostError, OutcomeUnknownError))
            departed = False
            try:
                departed = (
                    on_cancel_leave and not isinstance(error, Exception) and await self._leave_before_end(place.name)
                )
            finally:
                if not departed:
                    await self.unfinished.defer(partial(self._leave_and_break, party, gives_up))
            if gives_up:
                raise BrokenBarrierError from error
            raise

    async def _leave_before_end(self, mark: str) -> bool:
        """As _leave, before the call ends: who clears away what it left does not say why. False also where there is
        no time for it, or no session."""
        with suppress(DistsyncError):
            return await self._leave(mark)
        return False

    async def _leave(self, mark: str) -> bool:
        """Whether the one with this in his name has left, as if he had not come. False: he does not stand there."""
        while True:
            reads = (Sync(self.path), Children(self.path), GetData(self.path))
            _, listing, node = await read_all(*reads)
            if isinstance(node, NoNodeError) or isinstance(listing, NoNodeError):
                return False
            now, waiting = self._turn(node).with_reset_marks(listing.names)
            mine = next((each for each in waiting if mark in each.name), None)
            if mine is None:
                return any(mark in name for name in now.left)
            if listing.stat.version != node.stat.version:
                continue
            path = f"{self.path}/{mine.name}"
            counting = [each for each in waiting if now.includes(each)]
            if now.broken or mine not in counting[: self.parties]:
                return await delete_guaranteed(path)
            try:
                await self.receipts.commit(
                    SetData(self.path, now.without_waiter(mine.name).data(), now.version), Delete(path)
                )
                return True
            except (BadVersionError, NoNodeError):
                continue
            except OutcomeUnknownError as unknown:
                raise_deadline(unknown)

    async def _passed(self, known: int, directory: str, guid: str) -> QueueEntry | None:
        """We have passed before we heard that we stood there. Raises BrokenBarrierError where nobody knows, so many
        generations have passed since the ``known`` one: who stood there anew could be counted twice."""
        try:
            turn = self._turn(await read(GetData(directory)))
        except NoNodeError:
            return None
        session_id = (await Connected()).session_id
        passed = chain.from_iterable(turn.passed)
        place = next((QueueEntry(directory, name, 0, session_id) for name in passed if guid in name), None)
        if place is None and turn.generation - known > turn.kept:
            raise BrokenBarrierError
        return place

    async def _wait_for_release(
        self, party: Waiter, answers: Any, watch: Watch, action: Callable[[], Any] | None
    ) -> int:
        view = self._view(party.place, answers)
        while True:
            if view is None:
                watch = Watch()
                view = await self._read_state(party.place, watch)
            if not view.present:
                return party.index_in(view.turn)
            ahead = party.note(view, self.parties)
            if ahead is None:
                return await self._give_up(party)
            if ahead == self.parties - 1:
                if await self._open(party, view, action):
                    return ahead
            elif await self._wait(watch) is WakeReason.DEADLINE:
                return await self._give_up(party)
            view = None

    async def _wait(self, watch: Watch) -> WakeReason:
        """A member that died wakes nobody: we look again by ourselves after half a session time-out."""
        return await Wait(watch, limit=(await Connected()).timeout_ms / 2000)

    def _view(self, place: QueueEntry, answers: tuple[Any, ...]) -> BarrierSnapshot | None:
        """What these answers say; None if they say nothing, because the connection broke or the turn changed in
        between."""
        listing, node = answers
        for answer in answers:
            if isinstance(answer, DistsyncError) and not isinstance(answer, (NoNodeError, *INTERRUPTED)):
                raise answer
        if isinstance(node, NoNodeError):
            raise SessionLostError(f"waiting at {self.path}")
        if not isinstance(listing, Listing) or not isinstance(node, Node):
            return None
        if listing.stat.version != node.stat.version:
            return None
        turn, waiting = self._turn(node).with_reset_marks(listing.names)
        present = any(contender.name == place.name for contender in waiting)
        return BarrierSnapshot([contender.name for contender in waiting if turn.includes(contender)], present, turn)

    def _turn(self, node: Node) -> BarrierGeneration:
        turn = turn_in(self.path, node)
        self.agreed = turn.parties == self.parties
        if not self.agreed:
            raise MismatchError("the number of parties", self.path, turn.parties, self.parties)
        self.generation = max(self.generation, turn.generation)
        return turn

    async def _read_state(self, place: QueueEntry, watch: Watch) -> BarrierSnapshot:
        while True:
            view = self._view(place, await read_consistent(place, Children(self.path), GetData(self.path, watch)))
            # A missing znode says that we have passed only if it did not go with our session.
            if view is not None and (view.present or (await Connected()).session_id == place.session_id):
                return view

    async def _open(self, party: Waiter, view: BarrierSnapshot, action: Callable[[], Any] | None) -> bool:
        """The last one to arrive: the action, then everybody passes. False: the turn changed meanwhile."""
        names = view.names[: self.parties]
        group = (view.turn.generation, names)
        if action is not None and party.acted != group:
            try:
                await Call(action)
            except BaseException:
                await self._break(view.turn)
                raise
            party.acted = group
        turn = view.turn.next_generation(names)
        members = [Delete(f"{self.path}/{name}") for name in names]
        try:
            await self.receipts.commit(SetData(self.path, turn.data(), view.turn.version), *members)
            self.generation = max(self.generation, turn.generation)
            return True
        except (BadVersionError, NoNodeError):
            return False

    async def _give_up(self, party: Waiter) -> int:
        """Our deadline, or one who is missing, breaks the barrier for all, unless it opens in this moment."""
        while True:
            view = await self._read_state(party.place, Watch())
            if not view.present:
                return party.index_in(view.turn)
            party.note(view, self.parties)
            broken = replace(view.turn, broken=True)
            try:
                breaking = SetData(self.path, broken.data(), view.turn.version)
                await self.receipts.commit(breaking, Delete(party.place.path))
            except (BadVersionError, NoNodeError):
                continue
            raise BrokenBarrierError

    async def _leave_and_break(self, party: Waiter, timed_out: bool) -> None:
        """We do not wait any more: our znode goes, and those who count on us are told, or would if they were there. Who
        gives up breaks the barrier wherever he stood, as he does with a connection; who is interrupted, only as one of
        those that are to pass."""
        view, place = None, party.place
        most = None if timed_out else self.parties
        with suppress(SessionLostError):  # the barrier is there no more
            while view is None:
                view = self._view(place, await read_all(Children(self.path), GetData(self.path)))
        if view is None:
            return
        if not view.present:
            passed = view.turn.index_of(place.name) is not None
            for seen in () if passed or place.name in view.turn.left else (party.view, view):
                if seen is not None and place.name in self._counting(seen, place)[:most]:
                    await self._break(seen.turn)
        else:
            if place.name in view.names[:most]:
                await self._break(party.refused or view.turn)
            await delete_guaranteed(place.path)

    async def _break_after_lost_reply(self, guid: str) -> None:
        """As _leave_and_break, for one who has not heard whether he came to stand there: in which turn, the line
        says."""
        while True:
            await Connected()
            _, listing, node = await Together(Sync(self.path), Children(self.path), GetData(self.path))
            if isinstance(listing, INTERRUPTED) or isinstance(node, INTERRUPTED):
                continue
            if not isinstance(listing, Listing) or not isinstance(node, Node):
                return
            now, waiting = self._turn(node).with_reset_marks(listing.names)
            mine = next((each for each in waiting if guid in each.name), None)
            if mine is None:
                return
            if listing.stat.version != node.stat.version:
                continue
            if now.includes(mine):
                await self._break(now)
            await delete_guaranteed(f"{self.path}/{mine.name}")
            return

    def _counting(self, snapshot: BarrierSnapshot, place: QueueEntry) -> list[str]:
        """Who count there, first one first, if this one still stands."""
        waiting = in_order({*snapshot.names, place.name})
        return [each.name for each in waiting if snapshot.turn.includes(each)]

    async def _break(self, turn: BarrierGeneration | None, creates: bool = False) -> None:
        """Break this turn of the barrier, or (None) the present one. A barrier that does not exist is created only if
        the caller may be its first user: a party that has waited at it would bring a deleted one back."""
        behind: tuple[Sync, ...] = ()
        while True:
            try:
                *_, node = await read_all(*behind, GetData(self.path))
                raise_first((node,))
                now = self._turn(node)
                if now.broken and turn is None and not behind:
                    behind = (Sync(self.path),)  # our server may lag: it is reset since, perhaps
                    continue
                if now.broken or (turn is not None and now.generation != turn.generation):
                    return
                await self.receipts.commit(SetData(self.path, replace(now, broken=True).data(), now.version))
                return
            except BadVersionError:
                continue
            except OutcomeUnknownError as unknown:
                if turn is None:
                    raise
                raise_deadline(unknown)
            except NoNodeError:
                if behind or not creates:  # it existed, and was deleted
                    return
                await self._parents(self.path)

    async def abort(self) -> None:
        """The barrier is broken until it is reset."""
        await self._break(None, creates=True)

    async def reset(self) -> None:
        """The barrier is empty and whole; who waits gets BrokenBarrierError."""
        await self.unfinished.finish()
        guid = await Guid()
        mark = Create(f"{self.path}/_r_{guid}{RESET}", ephemeral=True, sequence=True)
        asked, behind = False, tuple[Sync, ...]()
        try:
            while True:
                *_, listing, node = await read_all(*behind, Children(self.path), GetData(self.path))
                if isinstance(node, NoNodeError) or isinstance(listing, NoNodeError):
                    if behind:
                        return
                    behind = (Sync(self.path),)  # our server may lag
                    continue
                now, waiting = self._turn(node).with_reset_marks(listing.names)
                after = waiting[-1].number if waiting else now.after  # should we die before the mark is read
                fresh = replace(now, generation=now.generation + 1, broken=False, after=after, left=())
                asked = True
                try:
                    await self.receipts.commit(SetData(self.path, fresh.data(), now.version), mark)
                    self.generation = max(self.generation, fresh.generation)
                    return
                except (BadVersionError, NoNodeError):
                    continue
        finally:
            if asked:
                await Background(self._merge_reset_mark(guid))

    async def _merge_reset_mark(self, guid: str) -> None:
        """What our mark says goes into the data, and the mark goes."""
        while True:
            listing, node = await read_all(Children(self.path), GetData(self.path))
            if isinstance(node, NoNodeError) or isinstance(listing, NoNodeError):
                return
            now, _ = self._turn(node).with_reset_marks(listing.names)
            marks = [name for name in listing.names if guid in name]
            if not marks:
                return
            folded = SetData(self.path, now.data(), now.version)
            try:
                await self.receipts.commit(folded, Delete(f"{self.path}/{marks[0]}"))
                return
            except BadVersionError:
                continue
            except NoNodeError:
                return

    async def state(self) -> tuple[int, bool]:
        """How many wait now, and whether the barrier is broken."""
        await self.unfinished.finish()
        listing, node = await read_all(Children(self.path), GetData(self.path))
        if isinstance(node, NoNodeError) or isinstance(listing, NoNodeError):
            return 0, False
        turn, standing = self._turn(node).with_reset_marks(listing.names)
        waiting = [contender for contender in standing if turn.includes(contender)]
        return (0 if turn.broken else min(len(waiting), self.parties)), turn.broken
