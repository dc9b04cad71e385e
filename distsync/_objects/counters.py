"""Counter and Value: a number, and anything else, that all share.

Rules for this file: no znode; each method checks its arguments and runs one protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from distsync._objects.base import SharedObject, type_name
from distsync._objects.ownership import repr_state
from distsync._objects.validation import validate_int, validate_timeout
from distsync._pickle import public_in
from distsync._protocols.state.counter import CounterCore
from distsync._protocols.state.versioned_value import ValueCore

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync._protocols.steps import Node

Item = TypeVar("Item")


class Counter(SharedObject):
    """A whole number, of any size, that all add to; each addition counts once, also when its answer is lost.

    Units: ``initial``: what the number is if nobody has used the name before.
    Cost: add 1 request if nobody else has changed it meanwhile, else 2 more each time; get 1.
    Fair: not between processes: whoever is first adds, the others try again.
    Source: ZooKeeper's conditional setData; Java's ``AtomicLong``, kazoo's ``Counter``, whose znodes these are.

    Znodes: ``<namespace>/counter/<name>``, data: the number.

    >>> visits = Counter(name="visits")
    >>> visits += 2
    >>> visits.add(3)
    5
    >>> visits.value
    5
    """

    __module__ = "distsync.recipes"
    _kind = "counter"

    def __init__(
        self,
        initial: int = 0,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        self._initial = validate_int("initial", initial)
        super().__init__(name, client, path, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._initial,)

    @property
    def _core(self) -> CounterCore:
        return self._shared_state(partial(CounterCore, initial=self._initial, receipts=self._receipts))

    def get(self, *, sync: bool = False) -> int:
        """The number, as the server at hand knows it; ``sync``: no older than this call.

        Cost: 1 request; with ``sync`` 2, 1 round trip.
        """
        return int(self._read(self._core.get(sync)))

    @property
    def value(self) -> int:
        """``get()``."""
        return self.get()

    def add(self, n: int = 1) -> int:
        """The number is ``n`` greater; ``n`` may be below zero.

        Returns: the number after it.
        Raises: OutcomeUnknownError when the session ended in this moment and nobody can know whether it was added.
        On loss: of the session: it goes on.
        On cancel: it was added, or not.
        Cost: 1 request if nobody else has changed the number since this process did; else 2 more each time.
        Fair: among the threads of one process in the order of their calls.
        """
        return int(self._run(self._core.add(validate_int("n", n))))

    def __iadd__(self, n: int) -> Counter:
        self.add(n)
        return self

    def __isub__(self, n: int) -> Counter:
        self.add(-validate_int("n", n))
        return self

    def set(self, number: int) -> None:
        """The number is this, whatever it was.

        Raises: as add.
        Cost: 1 request.
        """
        self._run(self._core.set(validate_int("number", number)))

    def compare_and_set(self, expected: int, number: int) -> bool:
        """The number is ``number``, if it was ``expected``.

        Returns: True; False if it was another number during this call, and then nothing is changed.
        Raises: as add.
        Cost: 1 request if this process knows the number; else 2, in 1 round trip, before.
        """
        wanted = validate_int("expected", expected), validate_int("number", number)
        return bool(self._run(self._core.compare_and_set(*wanted)))

    def __repr__(self) -> str:
        number = repr_state(self, lambda: self._core.get())
        return f"<{type_name(self)} at {id(self):#x}: {number}>"


@public_in("distsync.recipes")
class Versioned(NamedTuple):
    """A value, and the number of its version, which grows with each change."""

    value: Any
    version: int


class Value(SharedObject, Generic[Item]):
    """Anything that pickles, shared by all: read, written, and changed by who knows what it was.

    Units: ``initial``: what the value is if nobody has used the name before. At most 1,000,000 bytes.
    Cost: get 1 request, set 1, update 2, compare_and_set 3.
    Fair: not: whoever is first changes it, the others try again.
    Source: ZooKeeper's conditional setData; Java's ``AtomicReference``.

    Znodes: ``<namespace>/value/<name>``, data: the value.

    >>> limits = Value({}, name="limits")
    >>> limits.update(lambda old: {**old, "cpu": 4})
    {'cpu': 4}
    >>> limits.compare_and_set({"cpu": 4}, {"cpu": 8})
    True
    """

    __module__ = "distsync.recipes"
    _kind = "value"

    def __init__(
        self,
        initial: Item | None = None,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        self._initial = initial
        super().__init__(name, client, path, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._initial,)

    @property
    def _core(self) -> ValueCore:
        return self._shared_state(lambda path: ValueCore(path, self._encoded(self._initial), self._receipts))

    def _encoded(self, item: Any) -> bytes:
        data: bytes = self.client.codec.encode(item, self.path)
        return data

    def _decoded(self, node: Node) -> Versioned:
        return Versioned(self.client.codec.decode(node.data, self.path), node.stat.version)

    def read(self, *, sync: bool = False) -> Versioned:
        """The value and its version, as the server at hand knows them; ``sync``: no older than this call.

        Raises: PayloadRefusedError for a value that is unsigned, altered or unreadable.
        Cost: 1 request; with ``sync`` 2, 1 round trip.
        """
        core = self._core
        return self._decoded(self._read(core.read_synced() if sync else core.read()))

    def get(self, *, sync: bool = False) -> Item:
        """``read().value``."""
        item: Item = self.read(sync=sync).value
        return item

    def set(self, value: Item, *, version: int | None = None) -> bool:
        """The value is this; if a ``version`` is given, only if it still has that one.

        Returns: True; False if it has another version, and then nothing is changed.
        Raises: PayloadError for a value that does not pickle or is too large; OutcomeUnknownError when the session
            ended in this moment and nobody can know.
        Cost: 1 request.
        """
        data = self._encoded(value)
        if version is None:
            self._run(self._core.set(data))
            return True
        return self._run(self._core.replace(validate_int("version", version), data)) is not None

    def compare_and_set(self, expected: Item, value: Item) -> bool:
        """The value is ``value``, if it was equal to ``expected``.

        Returns: True; False if it was not, at a moment of this call, and then nothing is changed.
        Raises: as read and set.
        Cost: 3 requests, 2 round trips.
        """
        while True:
            current = self.read(sync=True)
            if current.value != expected:
                return False
            if self.set(value, version=current.version):
                return True

    def update(self, function: Callable[[Item], Item]) -> Item:
        """The value is what ``function`` made of it; nobody has changed it in between.

        ``function`` may be called several times, and should do nothing but look at the value.
        Returns: the new value.
        Raises: as read and set, and what the function raises; then nothing is changed.
        Cost: 2 requests, 2 more each time that others were faster.
        """
        while True:
            current = self.read()
            value = function(current.value)
            if self.set(value, version=current.version):
                return value

    def wait_for_change(self, timeout: float | None = None, *, version: int | None = None) -> Versioned | None:
        """The value was changed after ``version``, or, without it, since the call began.

        Units: seconds; None: without end.
        Returns: the value and its version; None if not in time.
        Raises: as read.
        On loss: of the session: it goes on waiting.
        On cancel: nothing is left behind.
        Cost: 1 request, 1 watch; 1 request more for the change.
        """
        since = None if version is None else validate_int("version", version)
        seconds = validate_timeout(timeout)
        node = self._run(self._core.changed(since), seconds)
        return None if node is None else self._decoded(node)

    def __repr__(self) -> str:
        return f"<{type_name(self)} at {id(self):#x}: {self._name!r}>"
