"""IdGenerator: unique integers for all processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._objects.base import ParametrizedObject, type_name
from distsync._objects.validation import validate_int, validate_on_mismatch
from distsync._protocols.state.id_blocks import IdsCore

if TYPE_CHECKING:
    from distsync._client.client import Client


class IdGenerator(ParametrizedObject):
    """A generator of unique integers, shared by threads, processes and hosts.

    Each process takes the ids in blocks. The ids that one process gets increase. The unused ids of
    a block are skipped when its process exits. After `destroy` ids begin again, and a process may
    still return the rest of its block.

    Args:
        block: Number of ids that one request takes, at least 1. All processes that use the name at
            the same time must use the same one.
        start: The first id. All processes that use the name at the same time must use the same one.
        name: Name of the generator, shared by all processes that use it. Without a name, a
            generator assigned at module or class level is named after its variable; any other
            generator gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the generator's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_mismatch: What the first use does while other processes use another block or start: ``"error"``
            raises MismatchError, ``"wait"`` waits until they have ended or dropped the object, and
            ``"adopt"`` uses theirs. If none does, ours is taken over in each case.

    Raises:
        TypeError: Both a name and a path are given, or ``block`` or ``start`` is not an integer.
        ValueError: ``block`` is less than 1.
        ConfigurationError: ``acl`` or ``on_mismatch`` is not valid.

    Note:
        An id costs no request, except for the first one of each block, which costs 1, and for the
        first one after a lost connection, which costs 1 or 2. The first block over a connection
        costs 1 more.

        The first call of a process, or of a session, costs 2 more in 1 round trip if the generator
        has a name. A changed block or start is taken over then if no running process uses the old
        one. The ids continue after those that were taken, or at ``start`` if that is greater.

        Znodes: ``<namespace>/ids/<name>``, whose data is block and start; ``.../<era>``, whose
        version counts the blocks; ``<namespace>/users/ids/<name>/u_<process>_<guid>``, ephemeral,
        one for each process that uses a generator with a name.

        Source: the version of a znode; Redisson's ``RIdGenerator``; ``itertools.count``.

    Example:
        >>> ids = IdGenerator(100, name="orders")
        >>> next(ids), next(ids)
        (1, 2)
    """

    __module__ = "distsync.recipes"
    _kind = "ids"
    _has_versions = True

    def __init__(
        self,
        block: int = 1000,
        start: int = 1,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
        on_mismatch: str = "error",
    ) -> None:
        self._block = validate_int("block", block, least=1)
        self._start = validate_int("start", start)
        self._on_mismatch = validate_on_mismatch(on_mismatch)
        self._parameters = {"block": self._block, "start": self._start}
        super().__init__(name, client, path, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._block, self._start)

    @property
    def block(self) -> int:
        """The number of ids that one request takes; it may be adopted from other processes."""
        return int(self._in_force["block"])

    @property
    def _core(self) -> IdsCore:
        core: IdsCore = self._agreed_state(partial(IdsCore, **self._parameters, receipts=self._receipts))
        return core

    def next_id(self, *, timeout: float | None = None) -> int:
        """Return an id that no other call gets.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The id.

        Raises:
            MismatchError: Other processes use this name with another block or start.
            CorruptNodeError: The generator's znode was deleted, or restored from a backup, while it
                was in use, and ids would repeat.
            DeadlineError: No server answered in time, and ids may be skipped. Subclass of
                TimeoutError.

        Note:
            Costs no request if ids of this process's block are left, otherwise 1.

            If the session ends, the call continues in the next one. If interrupted, the id is
            skipped.
        """
        return self.next_ids(1, timeout=timeout)[0]

    def next_ids(self, count: int, *, timeout: float | None = None) -> list[int]:
        """Return ids that no other call gets.

        Args:
            count: Number of ids; 0 returns an empty list.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The ids, in increasing order.

        Raises:
            TypeError: ``count`` is not an integer.
            ValueError: ``count`` is negative.
            MismatchError: Other processes use this name with another block or start.
            CorruptNodeError: The generator's znode was deleted, or restored from a backup, while it
                was in use, and ids would repeat.
            DeadlineError: No server answered in time, and ids may be skipped. Subclass of
                TimeoutError.

        Note:
            Costs 1 request for each block that is begun.

            If the session ends, the call continues in the next one. If interrupted, the ids are
            skipped.
        """
        core, few = self._core, validate_int("count", count, least=0)
        return list(self._ask(self._using(core, lambda: core.take(few)), timeout))

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        return self.next_id()

    def __repr__(self) -> str:
        return f"<{type_name(self)} at {id(self):#x}: blocks of {self._block}>"
