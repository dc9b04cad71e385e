"""Group: members are ephemeral znodes below the group's; who looks keeps the list by a watch.

Source: recipes.txt, "Out of the Box Applications: ... Group Membership".

Rules for this file: pure; a member's data is bytes here. The names are ``m_<guid>``, or those of kazoo's Party,
``<hex>__party__``; who looks counts both.

Picture: ``<path>/m_<guid>``  ephemeral, data = JSON, who it is and its data
"""

from __future__ import annotations

from distsync._protocols.retries import read_all
from distsync._protocols.state.persistent_ephemeral import Presence
from distsync._protocols.state.watch_cache import WatchCache, fired, names_below
from distsync._protocols.steps import GetData, Guid, Node, Signal, Watch

OURS = "m_"
KAZOO = "__party__"

Members = dict[str, Node]
"""By name."""


def is_member(name: str) -> bool:
    """Whether a child of this name is one."""
    return name.startswith(OURS) or KAZOO in name


class GroupCore:
    """What the threads of one process know together about one group."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.view: WatchCache[Members] = WatchCache(path, self._read_state)
        self.joined: dict[str, Presence] = {}
        self._known: Members = {}

    @property
    def idle(self) -> bool:
        """We are no member, and nobody asked to be told."""
        return self.view.idle and not self.mine

    async def _read_state(self, watch: Watch) -> Members:
        """Only of those who are new is the data read: it does not change."""
        names = [name for name in await names_below(self.path, watch) if is_member(name)]
        known = {name: self._known[name] for name in names if name in self._known}
        new = [name for name in names if name not in known]
        nodes = await read_all(*(GetData(f"{self.path}/{name}") for name in new)) if new else ()
        found = {name: node for name, node in zip(new, nodes, strict=True) if isinstance(node, Node)}
        self._known = {**known, **found}
        return self._known

    async def join(self, data: bytes, kazoo: bool = False, names: list[str] | None = None) -> str:
        """We are one member more; its name, which ``names`` has before it is one."""
        guid = await Guid()
        name = guid.replace("-", "") + KAZOO if kazoo else f"{OURS}{guid}"
        presence = Presence(f"{self.path}/{name}", data, self.view.forget)
        if names is not None:
            names.append(name)
        self.joined = {**self._present(), name: presence}
        await presence.create()
        return name

    def _present(self) -> dict[str, Presence]:
        return {name: presence for name, presence in self.joined.items() if presence.wanted}

    @property
    def mine(self) -> list[str]:
        """The names of our members. Also a thread that drives no protocol asks, so this changes nothing."""
        return list(self._present())

    def over(self, name: str) -> Signal:
        """Fires when this member of ours has left, or was taken out."""
        presence = self.joined.get(name)
        return fired() if presence is None else presence.over

    async def leave(self, name: str) -> bool:
        """We are one member less. False: we were not, or not any more."""
        self.view.forget()
        presence = self.joined.get(name)
        self.joined = {one: each for one, each in self._present().items() if one != name}
        return presence is not None and presence.wanted and await presence.delete()
