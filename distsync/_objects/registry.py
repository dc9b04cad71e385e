"""Registry.

Rules for this file: no znode; each method checks its arguments and runs one protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._client import contender_info
from distsync._client.contender_info import Contender, describe
from distsync._client.json_data import encode, fields
from distsync._client.naming.paths import decode_name, encode_name
from distsync._objects.base import SharedObject
from distsync._objects.observable import Observable
from distsync._objects.validation import validate_timeout
from distsync._pickle import public_in
from distsync._protocols.state.registry import Entries, RegistryCore
from distsync._protocols.state.watch_cache import WatchCache
from distsync._protocols.steps import Node
from distsync.errors import NameTakenError

if TYPE_CHECKING:
    from distsync._client.client import Client

NOBODY = contender_info.read(b"", "", 0)


@public_in("distsync.recipes")
@dataclass(frozen=True)
class Entry:
    """What a name leads to. Two are equal if address and metadata are.

    Attributes:
        address: Where the service is; any JSON.
        metadata: What else is known of it; JSON.
        persistent: Whether the entry outlives the process that registered it.
        owner: The process that registered it.
    """

    address: Any
    metadata: Mapping[str, Any] = field(default_factory=dict)
    persistent: bool = field(default=False, compare=False)
    owner: Contender = field(default=NOBODY, compare=False, repr=False)


def _entry(path: str, node: Node) -> Entry:
    record = fields(node.data)
    metadata = record.get("metadata")
    owner = contender_info.read(node.data, path, node.stat.czxid)
    return Entry(
        record.get("address"), metadata if isinstance(metadata, dict) else {}, node.stat.ephemeral_owner == 0, owner
    )


class Registry(Observable, SharedObject, MutableMapping[str, Entry]):
    """Names that lead to addresses. What a process registers goes when it dies, unless it is to last.

    ``registry[name] = address`` registers for as long as this process lives, whoever had the name before; a value may
    also be an ``Entry``, with metadata, and persistent. What is looked up is an Entry; ``resolve(name)`` is
    its address. Addresses and metadata are JSON. A pickle is a name.
    On loss: of the session: the names of this process go, and return with its next session, but for those that
        somebody has taken meanwhile.
    Cost: to register 2 requests, 1 round trip, and 1 in the background, 3 more if the name is there; to delete 1.
        Looking: none while watched; after a change 1, and 1 for each entry that is new or changed.
    Source: recipes.txt, Name Service; ``collections.abc.MutableMapping``.

    Znodes: ``<namespace>/registry/<registry>/<name>``, ephemeral or persistent; JSON: address, metadata, who it is.

    >>> services = Registry(name="services")
    >>> services["db"] = "10.0.0.7:5432"
    >>> services.resolve("db")
    '10.0.0.7:5432'
    >>> del services["db"]
    """

    __module__ = "distsync.recipes"
    _kind = "registry"

    def __init__(
        self,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(name, client, path, acl)

    @property
    def _core(self) -> RegistryCore:
        return self._shared_state(partial(RegistryCore, receipts=self._receipts))

    @property
    def _watched(self) -> WatchCache[Entries]:
        return self._core.view

    # ---- registering

    def register(
        self,
        name: str,
        address: Any,
        metadata: Mapping[str, Any] | None = None,
        *,
        persistent: bool = False,
        replace: bool = False,
    ) -> None:
        """``name`` leads to ``address``: as long as this process lives, or until it is deleted if ``persistent``.

        Raises: NameTakenError (a ValueError) if somebody else has the name and it is not to be replaced; TypeError,
            ValueError for a name that cannot be used; PayloadPickleError, PayloadTooLargeError; OutcomeUnknownError
            when the session ended in this moment and nobody can know.
        On loss: of the session: it returns with the next one.
        On cancel: it has happened, or not: what stands then is this process's, and comes back as any entry of its own.
        Cost: 2 requests, 1 round trip, and 1 in the background; 3 more if the name is there already.
        """
        part = _part(name)
        metadata = {} if metadata is None else dict(metadata)
        record = {**fields(describe()), "address": address, "metadata": metadata}
        if not self._run(self._core.put(part, encode(record, f"the entry {name!r}"), persistent, replace)):
            entry = self._entries().get(name)
            raise NameTakenError(name, self.path, entry.owner if entry else "somebody")

    def __setitem__(self, name: str, value: Any) -> None:
        entry = value if isinstance(value, Entry) else Entry(value)
        self.register(name, entry.address, entry.metadata, persistent=entry.persistent, replace=True)

    def __delitem__(self, name: str) -> None:
        if not self._run(self._core.remove(_part(name))):
            raise KeyError(name)

    @property
    def mine(self) -> frozenset[str]:
        """The names that live as long as this process. No request."""
        return frozenset(map(decode_name, self._core.mine))

    # ---- looking

    def _entries(self) -> dict[str, Entry]:
        found = self._seen()
        return {
            decode_name(part): _entry(f"{self.path}/{part}", node) for part, node in found.items() if _is_part(part)
        }

    def __getitem__(self, name: str) -> Entry:
        part = _part(name)
        return self._found(name, part, self._seen().get(part))

    def _found(self, name: str, part: str, node: Node | None) -> Entry:
        if node is None:
            raise KeyError(name)
        return _entry(f"{self.path}/{part}", node)

    def __iter__(self) -> Iterator[str]:
        return iter([decode_name(part) for part in sorted(self._seen()) if _is_part(part)])

    def __len__(self) -> int:
        return sum(map(_is_part, self._seen()))

    def __bool__(self) -> bool:
        """An empty registry is a registry."""
        return True

    __hash__ = SharedObject.__hash__
    __eq__ = SharedObject.__eq__

    def resolve(self, name: str, *, sync: bool = False) -> Any:
        """The address that ``name`` leads to. ``sync``: as a quorum of the ensemble knows it, not a server that lags.

        Raises: KeyError for a name that nobody has.
        Cost: none while watched; with ``sync`` 2 requests.
        """
        if not sync:
            return self[name].address
        part = _part(name)
        return self._found(name, part, self._read(self._core.look_up(part))).address

    def wait_for(self, name: str, timeout: float | None = None) -> Entry | None:
        """Somebody has registered ``name``.

        Units: seconds; None: without end.
        Returns: its entry; None if nobody has in time.
        On loss: of the session: it goes on waiting.
        On cancel: nothing is left behind.
        Cost: 1 request if it is there; else 3, and a watch on this name alone.
        """
        part, seconds = _part(name), validate_timeout(timeout)
        node = self._run(self._core.find(part), seconds)
        return None if node is None else _entry(f"{self.path}/{part}", node)

    def __repr__(self) -> str:
        return f"<distsync.recipes.Registry object name={self.name!r} at {id(self):#x}>"


def _part(name: object) -> str:
    """``name`` as a part of a path."""
    if not isinstance(name, str):
        raise TypeError(f"a name must be a str, not {type(name).__name__}")
    return encode_name(name)


def _is_part(part: str) -> bool:
    """Whether a child of this name is an entry of ours."""
    try:
        decode_name(part)
    except ValueError:
        return False
    return True
