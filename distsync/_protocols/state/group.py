"""Group: members are ephemeral children of the group's znode; observers keep the list by a watch.

Source: recipes.txt, "Out of the Box Applications: ... Group Membership".

Members are named ``m_<guid>``, or ``<hex>__party__`` as in kazoo's Party. Both count.

Znodes:
  ``<path>/m_<guid>``  ephemeral, data: JSON about the member, with its data
"""

from __future__ import annotations

from distsync._protocols.retries import read_all
from distsync._protocols.state.persistent_ephemeral import Presence
from distsync._protocols.state.watch_cache import WatchCache, fired, names_below
from distsync._protocols.steps import GetData, Guid, Node, Signal, Watch

OURS = "m_"
KAZOO = "__party__"

Members = dict[str, Node]
"""Members by name."""


def is_member(name: str) -> bool:
    """Return whether a child of this name is a member."""
    return name.startswith(OURS) or KAZOO in name


class GroupCore:
    """In-process state of a group, shared by all its threads."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.view: WatchCache[Members] = WatchCache(path, self._read_state)
        self.joined: dict[str, Presence] = {}
        self._known: Members = {}

    @property
    def idle(self) -> bool:
        """Whether this process has neither a member nor a listener."""
        return self.view.idle and not self.mine

    async def _read_state(self, watch: Watch) -> Members:
        """Return all members. Only the data of new ones is read, because it does not change."""
        names = [name for name in await names_below(self.path, watch) if is_member(name)]
        known = {name: self._known[name] for name in names if name in self._known}
        new = [name for name in names if name not in known]
        nodes = await read_all(*(GetData(f"{self.path}/{name}") for name in new)) if new else ()
        found = {name: node for name, node in zip(new, nodes, strict=True) if isinstance(node, Node)}
        self._known = {**known, **found}
        return self._known

    async def join(self, data: bytes, kazoo: bool = False, names: list[str] | None = None) -> str:
        """Add a member. Return its name, which is appended to ``names`` before the member is created."""
        guid = await Guid()
        name = guid.replace("-", "") + KAZOO if kazoo else f"{OURS}{guid}"
        presence = Presence(f"{self.path}/{name}", data, self.view.forget)
        if names is not None:
            names.append(name)
        self.joined = {**self._present(), name: presence}
        await presence.create()
        return name

    def _present(self) -> dict[str, Presence]:
        return {name: presence for name, presence in self.joined.items() if presence.is_maintained}

    @property
    def mine(self) -> list[str]:
        """Names of this process's members.

        Threads outside of a protocol read it too, so it changes nothing.
        """
        return list(self._present())

    def membership_ended(self, name: str) -> Signal:
        """Return a signal that fires when this member has left or was removed."""
        presence = self.joined.get(name)
        return fired() if presence is None else presence.ended

    async def leave(self, name: str) -> bool:
        """Remove a member. Return False if it was not, or no longer, a member."""
        self.view.forget()
        presence = self.joined.get(name)
        self.joined = {one: each for one, each in self._present().items() if one != name}
        return presence is not None and presence.is_maintained and await presence.delete()
