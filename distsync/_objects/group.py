"""Group: the live members of a group of processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from distsync._client import contender_info
from distsync._client.contender_info import Contender, describe
from distsync._client.deadlines import NO_WAIT_S, deadline_in, earliest, remaining
from distsync._client.json_data import encode, fields, with_data
from distsync._objects.base import SharedObject, ask_timeout_of
from distsync._objects.observable import PredicateWaitable
from distsync._objects.validation import refuse_positional, validate_callback
from distsync._pickle import public_in
from distsync._protocols.state.group import KAZOO, GroupCore, Members
from distsync._protocols.state.watch_cache import Listener, WatchCache
from distsync._protocols.steps import Node
from distsync._signal_handlers import is_interrupt
from distsync.errors import ClientClosedError, ConfigurationError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client

LAYOUTS = ("distsync", "kazoo")

OnMember = Callable[["Member"], Any]


@public_in("distsync.recipes")
@dataclass(frozen=True)
class Member:
    """A member of a group.

    Two members are equal if their ids are equal.

    Attributes:
        id: Unique name; a member that joins again after its session ended keeps it.
        data: The data that it joined with.
        owner: The process that joined.
    """

    id: str
    data: Any = field(compare=False)
    owner: Contender = field(compare=False, repr=False)


def _member(path: str, name: str, node: Node) -> Member:
    owner = contender_info.read(node.data, f"{path}/{name}", node.stat.czxid)
    data = node.data.decode("utf-8", "replace") if KAZOO in name else fields(node.data).get("data")
    return Member(name, data, owner)


class Group(PredicateWaitable, SharedObject):
    """A group of live members, which processes join and leave, and which all processes see.

    A member of a process that exits leaves the group by itself. A group can be iterated over, has a
    length, and supports ``in``. `members` is a frozenset of its members.

    Args:
        name: Name of the group, shared by all processes that use it. Without a name, a group
            assigned at module or class level is named after its variable; any other group gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the group's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        layout: How members of this object are stored: ``"distsync"``, or ``"kazoo"`` to join like
            kazoo's Party. Members of both layouts are seen in any case.
        on_join: Called with each member that is present or joins, in a thread of distsync's own,
            one call after the other unless one takes more than 5 seconds; None calls nothing.
        on_leave: Called with each member that leaves, in the same thread; None calls nothing.

    Raises:
        TypeError: Both a name and a path are given.
        ConfigurationError: ``acl`` or ``layout`` is not valid.

    Note:
        Joining costs 1 request, and 1 in the background. Leaving costs 1. Reading costs no request
        if nothing has changed since the last read; after a change it costs 1, and 1 for each new
        member.

        If the session ends, the other processes see the members of this process leave, and join
        again with its next session.

        Znodes: ``<namespace>/group/<name>/m_<guid>``, ephemeral, one for each member; JSON data
        with its owner and ``data``.

        Source: ZooKeeper recipes, "Group Membership".

    Example:
        >>> group = Group(name="workers")
        >>> me = group.join({"port": 8080})
        >>> [member.data for member in group]
        [{'port': 8080}]
        >>> group.leave()
    """

    __module__ = "distsync.recipes"
    _kind = "group"

    def __init__(
        self,
        *_: NoReturn,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
        layout: str = "distsync",
        on_join: OnMember | None = None,
        on_leave: OnMember | None = None,
    ) -> None:
        refuse_positional(self, _)
        if layout not in LAYOUTS:
            raise ConfigurationError("layout", layout, f"it must be one of {', '.join(LAYOUTS)}")
        super().__init__(name, client, path, acl)
        self._layout = layout
        self._callbacks: dict[str, OnMember | None] = {"join": None, "leave": None}
        self._listener: Listener | None = None
        self.on_join = validate_callback("on_join", on_join)
        self.on_leave = validate_callback("on_leave", on_leave)

    @property
    def _core(self) -> GroupCore:
        return self._shared_state(GroupCore)

    @property
    def _watched(self) -> WatchCache[Members]:
        return self._core.view

    # ---- members

    def join(self, data: Any = None, *, timeout: float | None = None) -> Member:
        """Add a member to the group, until it leaves, this process exits or its client is closed.

        Args:
            data: Any JSON value that the other processes can read; a str or None with
                ``layout="kazoo"``.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The new member.

        Raises:
            TypeError: ``data`` is not a str with ``layout="kazoo"``.
            PayloadPickleError: ``data`` is not JSON.
            PayloadTooLargeError: ``data`` is too large.
            DeadlineError: No server answered in time, and no member has joined, or it leaves in the
                background. Subclass of TimeoutError.

        Note:
            Costs 1 request, and 1 in the background.

            If the session ends, the member joins again under the same id. A member whose znode is
            deleted has left the group. If interrupted, no member has joined.

            Source: ZooKeeper recipes, "Group Membership": members create ephemeral nodes under the
            group node.
        """
        kazoo = self._layout == "kazoo"
        if kazoo and not isinstance(data, (str, type(None))):
            raise TypeError(f"with layout='kazoo' the data must be a str, not {type(data).__name__}")
        member_data = (data or "").encode() if kazoo else with_data(describe(), data, "the data of a member")
        encode(data, "the data of a member")
        names: list[str] = []
        try:
            name = self._ask(self._core.join(member_data, kazoo, names), timeout)
            return Member(name, data, contender_info.read(member_data, f"{self.path}/{name}", 0))
        except BaseException as error:  # perhaps interrupted after it had joined
            if is_interrupt(error):
                for name in names:
                    self.client.background(self._core.leave(name))
            raise

    def leave(self, member: Member | None = None, *, timeout: float | None = None) -> None:
        """Remove a member of this process, or all of them.

        Args:
            member: The member that leaves; None removes all members of this process.
            timeout: Maximum wait for the server, in seconds. None uses the client's default; the wait
                is never longer than the session timeout.

        Raises:
            TypeError: ``member`` is neither a Member nor None.
            NotHeldError: This process has not joined, or the member has left. Subclass of
                RuntimeError.
            DeadlineError: No time was left, and no member has left. Subclass of TimeoutError.

        Note:
            Costs 1 request for each member.

            If no server answers in time, the members leave in the background.
        """
        if not isinstance(member, (Member, type(None))):
            raise TypeError(f"member must be a Member, as join() returns, or None, not {member!r}")
        core = self._core
        names = core.mine if member is None else [member.id]
        if not names or not set(names) <= set(core.mine):
            raise NotHeldError(f"{self.path}: {'this process' if member is None else member.id} is no member from here")
        seconds = earliest(ask_timeout_of(self.client, timeout), self.client.settings.session_timeout)
        deadline = deadline_in(seconds)
        for name in names:
            seconds = max(remaining(deadline) or 0.0, NO_WAIT_S)
            self._run(core.leave(name), seconds)

    @property
    def joined(self) -> bool:
        """Whether this process has a member in the group.

        Note:
            Costs no request.
        """
        return bool(self._core.mine)

    @property
    def members(self) -> frozenset[Member]:
        """The present members of all processes.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs no request if nothing has changed since the last read. After a change it costs 1,
            and 1 for each new member.
        """
        return self.find_members()

    def find_members(self, *, sync: bool = False, timeout: float | None = None) -> frozenset[Member]:
        """Return the present members of all processes.

        Args:
            sync: Whether to read what a quorum of the ensemble knows: a server may lag behind.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The members.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs as many requests as `members`, and 2 requests with ``sync``.
        """
        return frozenset(self._shown_members(self._seen(sync, timeout)))

    def _shown_members(self, members: Members) -> list[Member]:
        return [_member(self.path, name, node) for name, node in sorted(members.items(), key=_age)]

    def __iter__(self) -> Iterator[Member]:
        """Iterate over the members, in the order in which they joined."""
        return iter(self._shown_members(self._seen()))

    def __len__(self) -> int:
        return len(self._seen())

    def __bool__(self) -> bool:
        """Return True, also without members."""
        return True

    def __contains__(self, member: object) -> bool:
        return isinstance(member, Member) and member.id in self._seen()

    # ---- listening

    @property
    def on_join(self) -> OnMember | None:
        """The callback for each member that is present or joins; None: none.

        A forked child has to set it again.

        Note:
            Setting it reads the members. Each change then costs as many requests as `members`.
        """
        return self._callbacks["join"]

    @on_join.setter
    def on_join(self, callback: OnMember | None) -> None:
        self._callbacks["join"] = callback
        self._listen()

    @property
    def on_leave(self) -> OnMember | None:
        """The callback for each member that leaves; None: none.

        A forked child has to set it again.

        Note:
            Setting it reads the members. Each change then costs as many requests as `members`.
        """
        return self._callbacks["leave"]

    @on_leave.setter
    def on_leave(self, callback: OnMember | None) -> None:
        self._callbacks["leave"] = callback
        self._listen()

    def _listen(self) -> None:
        wanted = any(self._callbacks.values())
        if wanted and (self._listener is None or not self._is_listened()):
            self._listener = self._add_listener(self._notify_change, {})
        elif not wanted and self._listener is not None:
            self._remove_listener(self._listener)
            self._listener = None

    def _notify_change(self, before: Members, now: Members) -> None:
        path = self.path
        for word, names, nodes in (("leave", before.keys() - now.keys(), before), ("join", now.keys() - before, now)):
            for name in names:
                callback = self._callbacks[word]
                if callback is not None:
                    with suppress(ClientClosedError):
                        self.client.call_back(partial(callback, _member(path, name, nodes[name])))

    def _options(self) -> dict[str, Any]:
        return {} if self._layout == "distsync" else {"layout": self._layout}

    def __repr__(self) -> str:
        return f"<distsync.recipes.Group object name={self.name!r} at {id(self):#x}>"


def _age(entry: tuple[str, Node]) -> int:
    return entry[1].stat.czxid
