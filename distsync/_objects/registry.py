"""Registry: a name service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from distsync._client import contender_info
from distsync._client.contender_info import Contender, describe
from distsync._client.json_data import encode, fields
from distsync._client.naming.paths import decode_name, encode_name
from distsync._objects.base import SharedObject
from distsync._objects.observable import Observable
from distsync._objects.validation import refuse_positional, validate_timeout
from distsync._pickle import public_in
from distsync._protocols.state.registry import Entries, RegistryCore
from distsync._protocols.state.watch_cache import WatchCache
from distsync._protocols.steps import Node
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import NameTakenError

if TYPE_CHECKING:
    from distsync._client.client import Client

NOBODY = contender_info.read(b"", "", 0)


@public_in("distsync.recipes")
@dataclass(frozen=True)
class Entry:
    """An entry of a registry.

    Two entries are equal if their addresses and metadata are equal.

    Attributes:
        address: Address of the service; any JSON value.
        metadata: Further information about the service; JSON values by name.
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
    """A name service shared by processes and hosts: a mapping of names to entries.

    ``registry[name] = address`` registers an address until this process exits, whether or not the
    name is taken. The value may also be an Entry, with metadata, and persistent. ``registry[name]``
    is an Entry, and ``resolve(name)`` is its address.

    Addresses and metadata are JSON values. A pickled registry contains its name only.

    Args:
        name: Name of the registry, shared by all processes that use it. Without a name, a registry
            assigned at module or class level is named after its variable; any other registry gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the registry's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.

    Raises:
        TypeError: Both a name and a path are given.
        ConfigurationError: ``acl`` is not valid.

    Note:
        Registering costs 2 requests in 1 round trip and 1 in the background, and 3 more if the name
        exists. Deleting costs 1 request. Reading costs no request if nothing has changed since the
        last read; after a change it costs 1, and 1 for each new or changed entry.

        If the session ends, the entries of this process are removed. They return with its next
        session, except for names that another process has registered in between.

        Znodes: ``<namespace>/registry/<registry>/<name>``, ephemeral or persistent; JSON data with
        address, metadata and owner.

        Source: ZooKeeper recipes, "Name Service"; ``collections.abc.MutableMapping``.

    Example:
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
        *_: NoReturn,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        refuse_positional(self, _)
        super().__init__(name, client, path, acl)

    @property
    def _core(self) -> RegistryCore:
        return self._shared_state(partial(self._with_receipts, RegistryCore))

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
        timeout: float | None = None,
    ) -> None:
        """Register an address under a name, until this process exits or for good.

        Args:
            name: Name of the service.
            address: Address of the service; any JSON value.
            metadata: Further information, JSON values by name; None means none.
            persistent: Whether the entry stays until it is deleted, even if this process exits.
            replace: Whether to replace an entry of another process.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Raises:
            NameTakenError: Another process has registered the name, and ``replace`` is False.
                Subclass of ValueError.
            TypeError: ``name`` is not a str.
            ValueError: ``name`` cannot be part of a path.
            PayloadPickleError: ``address`` or ``metadata`` is not JSON.
            PayloadTooLargeError: The entry is too large.
            OutcomeUnknownError: The session ended before the reply, and the entry may or may not
                have been registered.
            DeadlineError: No server answered in time, and the entry may or may not be registered.
                Subclass of TimeoutError.

        Note:
            Costs 2 requests in 1 round trip and 1 in the background, and 3 more if the name exists.

            If the session ends, the entry returns with the next one. If interrupted, the entry may
            or may not have been registered. If it was, it is this process's, and returns like any
            other of its entries.

            Source: ZooKeeper recipes, "Name Service".
        """
        part = _part(name)
        metadata = {} if metadata is None else dict(metadata)
        record = {**fields(describe()), "address": address, "metadata": metadata}
        data = encode(record, f"the entry {name!r}")
        with self._limited(timeout):
            if not self._ask(self._core.put(part, data, persistent, replace)):
                entry = self._entries().get(name)
                raise NameTakenError(name, self.path, entry.owner if entry else "another process")

    def __setitem__(self, name: str, value: Any) -> None:
        entry = value if isinstance(value, Entry) else Entry(value)
        self.register(name, entry.address, entry.metadata, persistent=entry.persistent, replace=True)

    def __delitem__(self, name: str) -> None:
        if not self._ask(self._core.remove(_part(name))):
            raise KeyError(name)

    @property
    def mine(self) -> frozenset[str]:
        """The names that this process has registered and that are removed when it exits.

        Note:
            Costs no request.
        """
        return frozenset(map(decode_name, self._core.mine))

    # ---- reading

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
        """Return True, also without entries."""
        return True

    __hash__ = SharedObject.__hash__
    __eq__ = SharedObject.__eq__

    def resolve(self, name: str, *, sync: bool = False, timeout: float | None = None) -> Any:
        """Return the address that is registered under a name.

        Args:
            name: Name of the service.
            sync: Whether to read what a quorum of the ensemble knows: a server may lag behind.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The address.

        Raises:
            KeyError: The name is not registered.
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs no request if nothing has changed since the last read, and 2 requests with
            ``sync``.
        """
        part = _part(name)
        node = self._ask(self._core.look_up(part), timeout) if sync else self._seen(timeout=timeout).get(part)
        return self._found(name, part, node).address

    def wait_for(self, name: str, timeout: float | None = None) -> Entry | None:
        """Wait until a name is registered.

        Args:
            name: Name of the service.
            timeout: Maximum wait in seconds; 0 or less does not wait, None waits forever.

        Returns:
            The entry; None on timeout.

        Note:
            Costs 1 request if the name is registered, otherwise 3 and a watch on this name alone.

            If the session ends, the wait continues in the next one. If interrupted, nothing is left
            behind.
        """
        part, seconds = _part(name), validate_timeout(timeout)
        node = self._run(self._core.find(part), seconds)
        if node is None:
            self._late()
            return None
        return _entry(f"{self.path}/{part}", node)

    def __repr__(self) -> str:
        return f"<distsync.recipes.Registry object name={self.name!r} at {id(self):#x}>"


def _part(name: object) -> str:
    """Return ``name`` as a part of a path, or raise TypeError or ValueError."""
    if not isinstance(name, str):
        raise TypeError(f"a name must be a str, not {type(name).__name__}")
    return encode_name(name)


def _is_part(part: str) -> bool:
    """Return whether a child of this name is an entry of distsync's."""
    try:
        decode_name(part)
    except ValueError as error:
        raise_if_from_handler(error)
        return False
    return True
