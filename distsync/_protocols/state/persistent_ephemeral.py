"""An ephemeral znode of ours that comes back with each next session, until it is withdrawn.

Source: recipes.txt, "Group Membership": members create ephemeral nodes; that they return after a loss is ours.

Rules for this file: pure; it knows no recipe. The name of the znode is fixed, so after a lost reply it is looked for by
its owner. One that somebody deletes while its session lives was taken away on purpose, and does not come back; one that
is refused, since a quota is used up or we may not write there, comes when it is not any more. What is made by
``create`` and ended by ``delete`` has a name that no other client uses: a znode of that name is ours, also one of an
earlier session.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from distsync._protocols.retries import INTERRUPTED, REFUSED_S, delete_guaranteed, ensure, parent_of, read
from distsync._protocols.steps import (
    Background,
    Connected,
    Create,
    Delete,
    Exists,
    Signal,
    Stat,
    Wait,
    WakeReason,
    Watch,
)
from distsync.errors import (
    BadVersionError,
    ClientClosedError,
    DeadlineError,
    DistsyncError,
    NodeExistsError,
    NoNodeError,
)


class Presence:
    """One such znode. ``changed`` is called whenever we have made or removed it."""

    def __init__(self, path: str, data: bytes, changed: Callable[[], None]) -> None:
        self.path = path
        self.data = data
        self.wanted = True
        self.session_id = 0
        self.asked_in: set[int] = set()
        """Sessions in which we have asked for it since it was there last: each may have it, and live on."""
        self.over = Signal()
        self._changed = changed
        self._making: Signal | None = None

    async def create(self) -> None:
        """The znode is there, and stays. Whatever interrupts this, it is not, and will not be."""
        try:
            await self._make()
            await Background(self.maintain())
        except BaseException:
            self.withdraw()
            await self._delete_node()
            raise

    async def delete(self) -> bool:
        """The znode is gone, or, at a deadline, will be. False: it was gone before."""
        self.withdraw()
        try:
            gone = await delete_guaranteed(self.path)
            with suppress(DeadlineError):
                await self.settled()
            return gone
        except BaseException as error:
            await Background(delete_guaranteed(self.path))
            if isinstance(error, DeadlineError):
                return True
            raise
        finally:
            self._changed()

    async def _delete_node(self) -> None:
        """At once if there is time, so that a ``create`` of this name does not meet our delete."""
        try:
            await delete_guaranteed(self.path)
        except BaseException as error:
            if isinstance(error, DeadlineError) or not isinstance(error, DistsyncError):
                await Background(self._delete_node())

    def withdraw(self) -> None:
        """It does not come back any more."""
        self.wanted = False
        self.over.fire()

    async def settled(self) -> None:
        """Withdrawn, and nothing that was begun before will still be done. Raises DeadlineError."""
        while self._making is not None:
            if await Wait(self._making) is WakeReason.DEADLINE:
                raise DeadlineError(f"the end of {self.path}")

    async def _make(self) -> None:
        """It is there, in the present session."""
        self._making = making = Signal()
        try:
            await self._create()
            self.asked_in.clear()
        finally:
            self._making = None
            making.fire()
            self._changed()

    async def _create(self) -> None:
        asked = 0
        while self.wanted:
            session_id = (await Connected()).session_id
            try:
                asked = session_id
                self.asked_in.add(session_id)
                created = await Create(self.path, self.data, ephemeral=True)
                self.session_id = created.stat.ephemeral_owner if created.stat else session_id
                break
            except NodeExistsError:
                stat = await read(Exists(self.path))
                if stat is not None and stat.ephemeral_owner == session_id:
                    self.session_id = session_id
                    break
                asked = 0
                if stat is not None:
                    await self._meet(stat)
            except NoNodeError:
                await ensure(parent_of(self.path), container=True)
            except INTERRUPTED:
                continue
        if not self.wanted and asked:
            await self._take_back(asked)

    async def _take_back(self, session_id: int) -> None:
        """It was withdrawn while it was made: it is not there, if it was ours."""
        while (stat := await read(Exists(self.path))) is not None:
            # A later session may have begun, unnoticed, before the create was sent.
            if stat.ephemeral_owner not in (session_id, (await Connected()).session_id):
                return
            with suppress(NoNodeError, BadVersionError, *INTERRUPTED):
                await Delete(self.path, stat.version)

    async def _meet(self, stat: Stat) -> None:
        """A znode of this name is there. Nobody else uses it: it is of an earlier session of ours, whose end was not
        seen everywhere yet."""
        try:
            await Delete(self.path, stat.version)
        except (NoNodeError, *INTERRUPTED):
            return

    async def maintain(self) -> None:
        """It comes back in each next session."""
        try:
            while self.wanted:
                try:
                    await self._look_after()
                except ClientClosedError:
                    return
                except DistsyncError:  # a quota is used up, say: that may change
                    await Wait(self.over, limit=REFUSED_S)
        finally:
            self.withdraw()
            self._changed()

    async def _look_after(self) -> None:
        """It is there as long as the session lives; nothing more until that changes."""
        session_id = (await Connected()).session_id
        if session_id != self.session_id:
            await self._make()
            return
        watch = Watch()
        stat = await read(Exists(self.path, watch))
        if stat is not None and stat.ephemeral_owner == self.session_id:
            await Wait(watch, self.over)
        elif (await Connected()).session_id == session_id:
            self.withdraw()
