"""An ephemeral znode that is created again in each new session until it is withdrawn.

Source: recipes.txt, "Group Membership": members create ephemeral nodes. Creating them again after a
session loss is ours.

The znode has a fixed name, so that after a lost reply its owner shows whether it is ours. If
another client deletes it during our session, that is taken as intended, and the znode is not
created again. If its creation is refused (quota, permissions), it is tried again later. The name of
a znode made by ``create`` and ended by ``delete`` is used by no other client: such a znode is ours,
even if it belongs to an earlier session.
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
    KeepResults,
    Signal,
    Stat,
    Wait,
    WakeReason,
    Watch,
)
from distsync._signal_handlers import is_interrupt
from distsync.errors import (
    BadVersionError,
    ClientClosedError,
    DeadlineError,
    DistsyncError,
    NodeExistsError,
    NoNodeError,
    UnreachableError,
)


class Presence:
    """A znode that exists while this client has a session. ``changed`` is called after each creation
    and deletion.
    """

    def __init__(self, path: str, data: bytes, changed: Callable[[], None]) -> None:
        self.path = path
        self.data = data
        self.session_id = 0
        self.create_sessions: set[int] = set()
        """Sessions in which we have sent a create since the znode last existed: each of them may own
        it.
        """
        self.ended = Signal()
        self._changed = changed
        self._creating: Signal | None = None

    @property
    def is_maintained(self) -> bool:
        """Whether the znode is created again in each new session."""
        return not self.ended.fired

    async def create(self) -> None:
        """Create the znode and maintain it. If interrupted, the znode is not left behind."""
        try:
            await self._create_now()
            await Background(self.maintain())
        except BaseException as error:
            self.withdraw()
            if isinstance(error, (DeadlineError, UnreachableError)) and not is_interrupt(error):
                await Background(self._delete_node())
            else:
                await self._delete_node()
            raise

    async def delete(self) -> bool:
        """Delete the znode, in the background after a deadline. Return False if it was gone."""
        self.withdraw()
        try:
            gone = await delete_guaranteed(self.path)
            with suppress(DeadlineError):
                await self.settled()
            return gone
        except BaseException as error:
            await Background(delete_guaranteed(self.path))
            if isinstance(error, DeadlineError) and not is_interrupt(error):
                return True
            raise
        finally:
            self._changed()

    async def _delete_node(self) -> None:
        """Delete the znode, at once if there is time, so that a later ``create`` of this name is not
        affected.
        """
        try:
            await delete_guaranteed(self.path)
        except BaseException as error:
            if isinstance(error, DeadlineError) or not isinstance(error, DistsyncError):
                await Background(self._delete_node())

    def withdraw(self) -> None:
        """Stop maintaining the znode."""
        self.ended.fire()

    async def settled(self) -> None:
        """Wait until no earlier request for a withdrawn znode is outstanding. Raises DeadlineError."""
        while self._creating is not None:
            if await Wait(self._creating) is WakeReason.DEADLINE:
                raise DeadlineError(f"deletion of {self.path}")

    async def _create_now(self) -> None:
        """Create the znode in the current session."""
        self._creating = creating = Signal()
        try:
            await self._create()
            self.create_sessions.clear()
        finally:
            self._creating = None
            creating.fire()
            self._changed()

    async def _create(self) -> None:
        asked = 0
        while self.is_maintained:
            session_id = (await Connected()).session_id
            try:
                asked = session_id
                self.create_sessions.add(session_id)
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
                    await self._delete_predecessor(stat)
            except NoNodeError:
                await ensure(parent_of(self.path), container=True)
            except INTERRUPTED:
                continue
        if not self.is_maintained and asked:
            await self._delete_if_withdrawn(asked)

    async def _delete_if_withdrawn(self, session_id: int) -> None:
        """Delete the znode if it was withdrawn while it was being created, and is ours."""
        while (stat := await read(Exists(self.path))) is not None:
            # A later session may have started, unnoticed, before the create was sent.
            if stat.ephemeral_owner not in (session_id, (await Connected()).session_id):
                return
            with suppress(NoNodeError, BadVersionError, *INTERRUPTED):
                await Delete(self.path, stat.version)

    async def _delete_predecessor(self, stat: Stat) -> None:
        """Delete a znode of this name. It belongs to an earlier session of ours, whose end not all
        servers have seen.
        """
        try:
            await Delete(self.path, stat.version)
        except (NoNodeError, *INTERRUPTED):
            return

    async def maintain(self) -> None:
        """Create the znode again in each new session."""
        try:
            while self.is_maintained:
                await KeepResults()
                try:
                    await self._maintain_once()
                except ClientClosedError:
                    return
                except DistsyncError:  # a quota is exceeded, for example: try again later
                    await Wait(self.ended, limit=REFUSED_S)
        finally:
            self.withdraw()
            self._changed()

    async def _maintain_once(self) -> None:
        """Wait until the znode or the session changes; create the znode in a new session."""
        session_id = (await Connected()).session_id
        if session_id != self.session_id:
            await self._create_now()
            return
        watch = Watch()
        stat = await read(Exists(self.path, watch))
        if stat is not None and stat.ephemeral_owner == self.session_id:
            await Wait(watch, self.ended)
        elif (await Connected()).session_id == session_id:
            self.withdraw()
