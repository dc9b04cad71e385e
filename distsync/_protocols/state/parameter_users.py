"""Users of an object whose znode records parameters, such as the number of permits of a semaphore.

Source: recipes.txt, "Out of the Box Applications: ... Group Membership".

A process registers its parameters before its first use of the object in a session, and only then
reads the record. A process that changes the record lists the users first, and its transaction
requires the version of the folder at that time, which each registration changes. So a user is
either seen by the process that changes the record, or reads the changed record. The record is changed only if no living
process uses the recorded parameters. A process that ``is_dead``, one of this host that does not run
any more, counts as gone before its session has ended.

A user that finds no record writes it, unless another one has registered before it.

Znodes:
  ``<folder>``                      container; its version counts registrations and changes
  ``<folder>/u_<process>_<guid>``   ephemeral, one for each process;
                                    data = ``{"parameters": {...}, ...}``
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from distsync._protocols.receipts import Operation
from distsync._protocols.retries import (
    DECODE_ERRORS,
    INTERRUPTED,
    delete_guaranteed,
    ensure,
    parent_of,
    raise_first,
    read,
    read_all,
)
from distsync._protocols.state.module_generation import at_deadline
from distsync._protocols.steps import (
    Background,
    Children,
    Connected,
    Create,
    Delete,
    GetData,
    Guid,
    Listing,
    Multi,
    Node,
    Pipeline,
    SetData,
    Sync,
    Wait,
    WakeReason,
    Watch,
)
from distsync._signal_handlers import is_interrupt, raise_if_from_handler
from distsync.errors import (
    AccessDeniedError,
    BadVersionError,
    DeadlineError,
    MismatchError,
    NodeExistsError,
    NoNodeError,
    SessionLostError,
)

ResultT = TypeVar("ResultT")

USER = "u_"

#: Seconds after which to look again whether the users that block a change still run.
CHECK_S = 1.0

#: How many znodes of dead processes are deleted with a change.
BATCH = 100

ERROR, WAIT, ADOPT = "error", "wait", "adopt"

Parameters = Mapping[str, Any]

#: Registrations of this process that have ended, and are being deleted.
_ended: set[str] = set()


class Parametrized(Protocol):
    """In-process state of an object whose znode records parameters.

    ``wanted`` are those that the object was given, by what an error calls them.
    """

    path: str
    wanted: dict[str, Any]

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that this process works with; adopted ones are not ``wanted``."""

    @parameters.setter
    def parameters(self, parameters: dict[str, Any]) -> None: ...

    def recorded(self, node: Node) -> dict[str, Any]:
        """Return the parameters in the object's znode. Raises CorruptNodeError or MismatchError."""

    async def new_record(self, node: Node | None, parameters: dict[str, Any]) -> Sequence[Operation]:
        """Return the operations that record ``parameters``, and reset what depends on them.

        ``node`` is the present record, whose version they require; None if there is none. May raise
        BadVersionError to be called again.
        """


class User(NamedTuple):
    """The znode of a user.

    Attributes:
        name: Its name.
        parameters: What it uses; None if that is unknown.
        node: Data and Stat.
    """

    name: str
    parameters: Parameters | None
    node: Node


class ParameterUser:
    """Registration of this process as a user of an object.

    Args:
        core: State of the object.
        folder: Path of the folder of its users.
        process: What identifies this process, for the names of its znodes; without ``_``.
        is_dead: Whether a process that is so identified does provably not run any more.
        show: Returns the text by which an error names a user, from its data.
    """

    def __init__(
        self,
        core: Parametrized,
        folder: str,
        process: str,
        is_dead: Callable[[str], bool],
        show: Callable[[bytes], str],
    ) -> None:
        self.core = core
        self.folder = folder
        self.process = process
        self.is_dead = is_dead
        self.show = show
        #: The parameters that this process asks for; ``core.parameters`` may be adopted ones.
        self.wanted = core.wanted
        #: The session in which this process is registered, and the name of its znode.
        self.session_id: int | None = None
        self.name = ""
        self.description: Mapping[str, Any] = {}

    async def join(self, description: Mapping[str, Any], on_mismatch: str = ERROR) -> None:
        """Register in the current session, unless this process is registered.

        Args:
            description: Further fields of the data.
            on_mismatch: What to do while others use other parameters: `ERROR`, `WAIT` or `ADOPT`.

        Raises:
            MismatchError: Others use other parameters.
            DeadlineError: They still did at the deadline.
        """
        self.description = description
        while (session_id := (await Connected()).session_id) != self.session_id:
            blocking = await self._join(session_id, description, on_mismatch)
            if blocking:
                await self._wait_for(blocking)

    async def _join(self, session_id: int, description: Mapping[str, Any], on_mismatch: str) -> list[User]:
        """Try to register in this session. Return the users to wait for."""
        name = f"{USER}{self.process}_{await Guid()}"
        parameters, blocking, is_registered = self.wanted, list[User](), False
        try:
            while not blocking and (await Connected()).session_id == session_id != self.session_id:
                found = await self._register(name, parameters, description)
                if found is None:
                    continue
                recorded = self.core.recorded(found) if isinstance(found, Node) else None
                if recorded == parameters:
                    is_registered = await self._joined(session_id, name, parameters)
                    break
                version, users = await self._users()
                if (await Connected()).session_id != session_id or self.session_id == session_id:
                    break  # another thread was faster, or may have been in a newer session
                living = [each for each in users if self._lives(each)]
                if name not in [each.name for each in living]:
                    continue
                if recorded is None:
                    first = min(living, key=lambda each: each.node.stat.czxid)
                    others = [first] if first.parameters != parameters else []
                    recorded = dict(first.parameters or {})
                else:
                    mine = (name, self.name, *_ended)  # the second one is of a session that has ended
                    others = [each for each in living if each.name not in mine and each.parameters in (recorded, None)]
                if isinstance(found, Node) and parameters != self.wanted and (recorded == self.wanted or not others):
                    parameters = self.wanted
                elif not others:
                    gone = [each.name for each in users if each not in living]
                    if await self._record(found if isinstance(found, Node) else None, parameters, version, gone):
                        is_registered = await self._joined(session_id, name, parameters)
                        break
                elif on_mismatch == ADOPT and recorded.keys() == self.wanted.keys():
                    parameters = recorded
                elif on_mismatch == WAIT:
                    blocking = others
                else:
                    raise self._mismatch(recorded, others)
        except AccessDeniedError:  # it may not register: the object's own check of the record has to do
            self.session_id = session_id
        finally:
            if not is_registered:
                await Background(partial(delete_guaranteed, f"{self.folder}/{name}"))
        return blocking

    async def _register(
        self, name: str, parameters: Parameters, description: Mapping[str, Any]
    ) -> Node | NoNodeError | None:
        """Write our parameters, and then read the record. Return None if this has to be repeated."""
        path = f"{self.folder}/{name}"
        data = json.dumps({"parameters": parameters, **description}, separators=(",", ":")).encode()
        for write in (Create(path, data, ephemeral=True, own_cleanup=True), SetData(path, data)):
            register = Multi((write, SetData(self.folder)))
            registered, found = await Pipeline(register, GetData(self.core.path))
            if isinstance(registered, NodeExistsError):
                continue
            if isinstance(registered, NoNodeError):
                await ensure(self.folder, container=True)
                return None
            if isinstance(registered, SessionLostError) and not isinstance(found, INTERRUPTED):
                await self._create_alone(path, data)
                return None
            if isinstance(registered, INTERRUPTED) or isinstance(found, INTERRUPTED):
                return None
            raise_first((registered,))
            if isinstance(found, (Node, NoNodeError)):
                return found
            raise_first((found,))
        return None

    async def _create_alone(self, path: str, data: bytes) -> None:
        """Register without a transaction, in which ZooKeeper reports a local session as one that has ended.

        Raises:
            RequestError: The session is a local one, which cannot have ephemeral znodes.
        """
        with suppress(NodeExistsError, NoNodeError, *INTERRUPTED):
            await Create(path, data, ephemeral=True, own_cleanup=True)

    async def _users(self) -> tuple[int, list[User]]:
        """Return the version of the folder, and the users that were registered in it."""
        _, listing = await read_all(Sync(self.folder), Children(self.folder))
        if not isinstance(listing, Listing):
            return -1, []
        names = [each for each in listing.names if each.startswith(USER)]
        nodes = await read_all(*(GetData(f"{self.folder}/{each}") for each in names)) if names else ()
        found = zip(names, nodes, strict=True)
        return listing.stat.version, [
            User(name, _parameters(node), node) for name, node in found if isinstance(node, Node)
        ]

    def _lives(self, user: User) -> bool:
        """Return whether the process of a user may still run."""
        return not self.is_dead(user.name[len(USER) :].rpartition("_")[0])

    async def _record(self, found: Node | None, parameters: dict[str, Any], version: int, gone: list[str]) -> bool:
        """Record our parameters. Return False if a user or the record has changed."""
        try:
            changes = await self.core.new_record(found, parameters)
            deletions = [Delete(f"{self.folder}/{each}") for each in gone[:BATCH]]
            await Multi((SetData(self.folder, b"", version), *changes, *deletions))
            return True
        except NoNodeError:
            await ensure(parent_of(self.core.path))
        except (BadVersionError, NodeExistsError, *INTERRUPTED):
            pass
        return False

    async def _joined(self, session_id: int, name: str, parameters: dict[str, Any]) -> bool:
        """Note the registration. Return False if another thread was faster, or the session has ended."""
        if (await Connected()).session_id != session_id or self.session_id == session_id:
            return False
        former, self.session_id, self.name = self.name, session_id, name
        self.core.parameters = parameters
        if former:  # a session that has ended may come back
            await Background(partial(delete_guaranteed, f"{self.folder}/{former}"))
        return True

    async def _wait_for(self, blocking: list[User]) -> None:
        """Wait until one of these users does not exist any more, or provably does not run."""
        while all(map(self._lives, blocking)):
            watch = Watch()
            try:
                listing = await read(Children(self.folder, watch))
            except NoNodeError:
                return
            if not {each.name for each in blocking} <= {*listing.names}:
                return
            if await Wait(watch, limit=CHECK_S) is WakeReason.DEADLINE:
                raise DeadlineError(f"the wait for the processes that use other parameters of {self.core.path}")

    def _mismatch(self, recorded: Parameters, blocking: list[User]) -> MismatchError:
        """Return the error that names the first parameter that differs, and the users of the recorded ones."""
        users = ", ".join(sorted({self.show(each.node.data) for each in blocking}))
        return mismatch(self.core.path, recorded, self.wanted, users)

    async def rejoin(self, session_id: int) -> None:
        """Register again if a call has continued in this session. Raises MismatchError."""
        if session_id != self.session_id:
            await self.join(self.description)

    def end(self) -> Coroutine[Any, Any, None]:
        """End the registration now. Return the protocol that deletes it."""
        name, self.session_id, self.name = self.name, None, ""
        if name:
            _ended.add(name)
        return self._delete(name)

    async def _delete(self, name: str) -> None:
        if name:
            await delete_guaranteed(f"{self.folder}/{name}")
            _ended.discard(name)


def mismatch(path: str, theirs: Parameters, ours: Parameters, users: str) -> MismatchError:
    """Return the error about the first parameter that differs."""
    name = next(each for each in ours if theirs.get(each) != ours[each])
    return MismatchError(f"the {name}", path, theirs.get(name, "unknown"), ours[name], users)


def _parameters(node: object) -> Parameters | None:
    """Return the parameters in a user's znode; None if they cannot be read."""
    if not isinstance(node, Node):
        return None
    try:
        parameters = json.loads(node.data)["parameters"]
    except DECODE_ERRORS as error:
        raise_if_from_handler(error)
        return None
    return parameters if isinstance(parameters, dict) else None


async def as_user(
    user: ParameterUser,
    description: Mapping[str, Any],
    on_mismatch: str,
    protocol: Callable[[], Coroutine[Any, Any, ResultT]],
) -> ResultT:
    """Register, and then run a protocol that uses the object.

    At the deadline, the protocol ends as it does if there is no connection.
    """
    try:
        await user.join(description, on_mismatch)
    except DeadlineError as error:
        if is_interrupt(error):
            raise
        return await at_deadline(protocol(), error)
    return await protocol()
