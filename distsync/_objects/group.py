"""Group.

Rules for this file: no znode; each method checks its arguments and runs one protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from distsync._client import contender_info
from distsync._client.contender_info import Contender, describe
from distsync._client.json_data import encode, fields, with_data
from distsync._objects.base import SharedObject
from distsync._objects.observable import PredicateWaitable, call_logged
from distsync._pickle import public_in
from distsync._protocols.state.group import KAZOO, GroupCore, Members
from distsync._protocols.state.watch_cache import Listener, WatchCache
from distsync._protocols.steps import Node
from distsync.errors import ConfigurationError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client

LAYOUTS = ("distsync", "kazoo")

OnMember = Callable[["Member"], Any]


@public_in("distsync.recipes")
@dataclass(frozen=True)
class Member:
    """A member of a group. Two are equal if their ``id`` is.

    Attributes:
        id: Name of its own; a member that joins again after its session was lost keeps it.
        data: What it joined with.
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
    """Who is there: processes join and leave, the dead leave by themselves, and everybody sees the same list.

    It is iterated, counted and asked with ``in``, and so shows its members; ``members`` is a frozenset of them.
    ``on_join(member)`` is called for each one that is there or comes, ``on_leave(member)`` for each one that goes, one
    after the other in a thread of distsync's own. With ``layout="kazoo"`` we join as a Party of kazoo does; who looks
    sees both kinds in any case.
    On loss: of the session: the others see our members leave, and join again with the next session.
    Cost: to join 1 request, and 1 in the background; to leave 1; looking: none while watched, 1 after each change, and
        1 for each new member.
    Source: recipes.txt, Group Membership.

    Znodes: ``<namespace>/group/<name>/m_<guid>``, ephemeral, one a member; JSON: who it is, and ``data``.

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
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
        layout: str = "distsync",
        on_join: OnMember | None = None,
        on_leave: OnMember | None = None,
    ) -> None:
        if layout not in LAYOUTS:
            raise ConfigurationError("layout", layout, f"it must be one of {', '.join(LAYOUTS)}")
        super().__init__(name, client, path, acl)
        self._layout = layout
        self._callbacks: dict[str, OnMember | None] = {"join": None, "leave": None}
        self._listener: Listener | None = None
        self.on_join, self.on_leave = on_join, on_leave

    @property
    def _core(self) -> GroupCore:
        return self._shared_state(GroupCore)

    @property
    def _watched(self) -> WatchCache[Members]:
        return self._core.view

    # ---- members

    def join(self, data: Any = None) -> Member:
        """This process is one member more, until it leaves, dies or closes its client. ``data`` is any JSON that the
        others shall know; with ``layout="kazoo"`` a str.

        Raises: PayloadPickleError, PayloadTooLargeError for data that cannot be sent; TypeError for kazoo's.
        On loss: of the session: it joins again, under the same id. A member whose znode somebody deletes is out.
        On cancel: it has not joined.
        Cost: 1 request, and 1 in the background.
        Source: recipes.txt, Group Membership: members create ephemeral nodes under the group node.
        """
        kazoo = self._layout == "kazoo"
        if kazoo and not isinstance(data, (str, type(None))):
            raise TypeError(f"with layout='kazoo' the data must be a str, not {type(data).__name__}")
        member_data = (data or "").encode() if kazoo else with_data(describe(), data, "the data of a member")
        encode(data, "the data of a member")
        names: list[str] = []
        try:
            name = self._run(self._core.join(member_data, kazoo, names))
            return Member(name, data, contender_info.read(member_data, f"{self.path}/{name}", 0))
        except Exception:
            raise
        except BaseException:  # perhaps interrupted when it had joined
            for name in names:
                self.client.background(self._core.leave(name))
            raise

    def leave(self, member: Member | None = None) -> None:
        """``member`` of this process is out; without it all of them.

        Raises: NotHeldError (a RuntimeError) if this process has not joined, or is out already.
        On loss: of the connection: the znode goes in the background.
        Cost: 1 request for each.
        """
        core = self._core
        names = core.mine if member is None else [member.id]
        if not names or not set(names) <= set(core.mine):
            raise NotHeldError(f"{self.path}: {'this process' if member is None else member.id} is no member from here")
        for name in names:
            self._run(core.leave(name), self.client.settings.session_timeout)

    @property
    def joined(self) -> bool:
        """Whether this process has a member in it. No request."""
        return bool(self._core.mine)

    @property
    def members(self) -> frozenset[Member]:
        """Everybody who is there.

        Cost: none while watched; 1 request after each change, and 1 for each new member.
        """
        return self.find_members()

    def find_members(self, *, sync: bool = False) -> frozenset[Member]:
        """Everybody who is there. ``sync``: as a quorum of the ensemble knows it, not a server that lags.

        Cost: as ``members``; with ``sync`` 2 requests.
        """
        return frozenset(self._shown_members(self._seen(sync)))

    def _shown_members(self, members: Members) -> list[Member]:
        return [_member(self.path, name, node) for name, node in sorted(members.items(), key=_age)]

    def __iter__(self) -> Iterator[Member]:
        """The members, who came first first."""
        return iter(self._shown_members(self._seen()))

    def __len__(self) -> int:
        return len(self._seen())

    def __bool__(self) -> bool:
        """An empty group is a group."""
        return True

    def __contains__(self, member: object) -> bool:
        return isinstance(member, Member) and member.id in self._seen()

    # ---- being told

    @property
    def on_join(self) -> OnMember | None:
        """What is called with each member that is there or comes; None: nothing. A forked child sets it again.

        Cost: setting it sends the first look; then that of looking, for each change.
        """
        return self._callbacks["join"]

    @on_join.setter
    def on_join(self, callback: OnMember | None) -> None:
        self._callbacks["join"] = callback
        self._listen()

    @property
    def on_leave(self) -> OnMember | None:
        """What is called with each member that goes; as on_join."""
        return self._callbacks["leave"]

    @on_leave.setter
    def on_leave(self, callback: OnMember | None) -> None:
        self._callbacks["leave"] = callback
        self._listen()

    def _listen(self) -> None:
        wanted = any(self._callbacks.values())
        if wanted and self._listener is None:
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
                    call_logged(callback, _member(path, name, nodes[name]))

    def _options(self) -> dict[str, Any]:
        return {} if self._layout == "distsync" else {"layout": self._layout}

    def __repr__(self) -> str:
        return f"<distsync.recipes.Group object name={self.name!r} at {id(self):#x}>"


def _age(entry: tuple[str, Node]) -> int:
    return entry[1].stat.czxid
