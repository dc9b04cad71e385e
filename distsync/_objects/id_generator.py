"""IdGenerator: numbers that no other call gets.

Rules for this file: no znode; each method checks its arguments and runs one protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._objects.base import SharedObject, type_name
from distsync._objects.validation import validate_int
from distsync._protocols.state.id_blocks import IdsCore
from distsync.errors import MismatchError

if TYPE_CHECKING:
    from distsync._client.client import Client


class IdGenerator(SharedObject):
    """Whole numbers that nobody else gets, ever; each process takes them ``block`` by block.

    Those of one process grow. What is left of a block when its process ends is skipped.

    Units: ``block``: ids for one request; ``start``: the first id. Everybody must say the same.
    Cost: no request; 1 for the first of each block.
    Source: the version of a znode; Redisson's ``RIdGenerator``, shaped as ``itertools.count``.

    Znodes: ``<namespace>/ids/<name>``, data: the block; ``.../<era>``, whose version counts the blocks.

    >>> ids = IdGenerator(100, name="orders")
    >>> next(ids), next(ids)
    (1, 2)
    """

    __module__ = "distsync.recipes"
    _kind = "ids"

    def __init__(
        self,
        block: int = 1000,
        start: int = 1,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        self._block = validate_int("block", block, least=1)
        self._start = validate_int("start", start)
        super().__init__(name, client, path, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._block, self._start)

    @property
    def block(self) -> int:
        """How many ids one request takes."""
        return self._block

    @property
    def _core(self) -> IdsCore:
        core = self._shared_state(partial(IdsCore, block=self._block, start=self._start))
        for label, theirs, ours in (("block", core.block, self._block), ("start", core.start, self._start)):
            if theirs != ours:
                raise MismatchError(f"the {label}", self.path, theirs, ours)
        return core

    def next_id(self) -> int:
        """An id that nobody else gets, ever.

        Raises: MismatchError where others ask for another block or start; CorruptNodeError when its znode was deleted
            under it, as the ids would begin anew.
        On loss: of the session: it goes on.
        On cancel: the id is skipped.
        Cost: no request; 1 for the first of each block.
        """
        return self.next_ids(1)[0]

    def next_ids(self, count: int) -> list[int]:
        """So many ids that nobody else gets, ever, in growing order.

        Raises: as next_id.
        Cost: 1 request for each block that is begun.
        """
        return list(self._run(self._core.take(validate_int("count", count, least=0))))

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        return self.next_id()

    def __repr__(self) -> str:
        return f"<{type_name(self)} at {id(self):#x}: blocks of {self._block}>"
