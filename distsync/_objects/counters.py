"""Counter and Value: an integer, and any other value, shared by processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from distsync._objects.base import SharedObject, type_name
from distsync._objects.ownership import repr_state
from distsync._objects.validation import validate_int, validate_timeout
from distsync._pickle import public_in
from distsync._protocols.state.counter import CounterCore
from distsync._protocols.state.versioned_value import ANY, MAX_VERSION, MIN_VERSION, ValueCore

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync._protocols.receipts import Basis
    from distsync._protocols.steps import Node

Item = TypeVar("Item")


class Counter(SharedObject):
    """An integer of any size shared by threads, processes and hosts.

    Each addition counts exactly once, even if its reply is lost.

    Args:
        initial: The number if no process has used the name before.
        name: Name of the counter, shared by all processes that use it. Without a name, a counter
            assigned at module or class level is named after its variable; any other counter gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the counter's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.

    Raises:
        TypeError: Both a name and a path are given, or ``initial`` is not an integer.
        ConfigurationError: ``acl`` is not valid.

    Note:
        `add` costs 1 request if no other process has changed the number since this process last
        changed it, and 2 more for each time that another process was faster. `get` costs 1 request.

        Not fair between processes: the first addition succeeds, and the others are tried again.

        Znodes: ``<namespace>/counter/<name>``, whose data is the number, as of kazoo's ``Counter``.

        Source: ZooKeeper's conditional setData; Java's ``AtomicLong``, kazoo's ``Counter``.

    Example:
        >>> visits = Counter(name="visits")
        >>> visits += 2
        >>> visits.add(3)
        5
        >>> visits.value
        5
    """

    __module__ = "distsync.recipes"
    _kind = "counter"
    _has_versions = True

    def __init__(
        self,
        initial: int = 0,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        self._initial = validate_int("initial", initial, or_name=True)
        super().__init__(name, client, path, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._initial,)

    @property
    def _core(self) -> CounterCore:
        return self._shared_state(partial(self._with_receipts, CounterCore, initial=self._initial))

    def get(self, *, sync: bool = False, timeout: float | None = None) -> int:
        """Return the number, as the server of this client knows it.

        Args:
            sync: Whether to return the latest number: a server may lag behind the leader of the
                ensemble.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The number.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs 1 request, and 2 requests in 1 round trip with ``sync``.
        """
        return int(self._ask(self._core.get(sync), timeout))

    @property
    def value(self) -> int:
        """The number, like ``get()``.

        Raises:
            DeadlineError: No server answered within the client's default timeout. Subclass of
                TimeoutError.

        Note:
            Costs 1 request.
        """
        return self.get()

    def add(self, n: int = 1, *, timeout: float | None = None) -> int:
        """Add ``n`` to the number.

        Args:
            n: The number to add; it may be negative.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The number after the addition.

        Raises:
            TypeError: ``n`` is not an integer.
            OutcomeUnknownError: The session ended before the reply, and ``n`` may or may not have
                been added.
            DeadlineError: No server answered in time, and ``n`` may or may not be added. Subclass
                of TimeoutError.

        Note:
            Costs 1 request if no other process has changed the number since this process last
            changed it, and 2 more for each time that another process was faster.

            The first call of a process costs more. The threads of one process add in FIFO order.

            If the session ends, the call continues in the next one. If interrupted, ``n`` may or
            may not have been added.
        """
        return int(self._ask(self._core.add(validate_int("n", n)), timeout))

    def __iadd__(self, n: int) -> Counter:
        self.add(n)
        return self

    def __isub__(self, n: int) -> Counter:
        self.add(-validate_int("n", n))
        return self

    def set(self, number: int, *, timeout: float | None = None) -> None:
        """Set the number, whatever it was.

        Args:
            number: The new number.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Raises:
            TypeError: ``number`` is not an integer.
            OutcomeUnknownError: The session ended before the reply, and the number may or may not
                have been set.
            DeadlineError: No server answered in time, and the number may or may not be set.
                Subclass of TimeoutError.

        Note:
            Costs 1 request.

            If the session ends, the call continues in the next one. If interrupted, the number may
            or may not have been set.
        """
        self._ask(self._core.set(validate_int("number", number)), timeout)

    def compare_and_set(self, expected: int, number: int, *, timeout: float | None = None) -> bool:
        """Set the number if it has the expected value.

        Args:
            expected: The number that is expected.
            number: The new number.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            True if the number was set. False if it was another one during this call, and nothing
            was changed.

        Raises:
            TypeError: ``expected`` or ``number`` is not an integer.
            OutcomeUnknownError: The session ended before the reply, and the number may or may not
                have been set.
            DeadlineError: No server answered in time, and the number may or may not be set.
                Subclass of TimeoutError.

        Note:
            Costs 1 request if this process knows that the number is ``expected``. Otherwise it
            reads the number first, which costs 2 requests in 1 round trip.

            If the session ends, the call continues in the next one. If interrupted, the number may
            or may not have been set.
        """
        wanted = validate_int("expected", expected), validate_int("number", number)
        return bool(self._ask(self._core.compare_and_set(*wanted), timeout))

    def __repr__(self) -> str:
        number = repr_state(self, lambda: self._core.get())
        return f"<{type_name(self)} at {id(self):#x}: {number}>"


@public_in("distsync.recipes")
class Versioned(NamedTuple):
    """A value and its version.

    Attributes:
        value: The value.
        version: Number of the version, which changes with each change of the value.
    """

    value: Any
    version: int


class Value(SharedObject, Generic[Item]):
    """A value shared by threads, processes and hosts, with compare-and-set.

    The value is encoded by the client's codec, pickle by default. An encoded value may be 1,000,000
    bytes long at most.

    Args:
        initial: The value if no process has used the name before.
        name: Name of the value, shared by all processes that use it. Without a name, a value
            assigned at module or class level is named after its variable; any other value gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the value's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.

    Raises:
        TypeError: Both a name and a path are given.
        ConfigurationError: ``acl`` is not valid.

    Note:
        `get` costs 1 request, `set` 1, `update` 2 and `compare_and_set` 3.

        Not fair: the first change succeeds, and the others are tried again.

        Znodes: ``<namespace>/value/<name>``, whose data is the value.

        Source: ZooKeeper's conditional setData; Java's ``AtomicReference``.

    Example:
        >>> limits = Value({}, name="limits")
        >>> limits.update(lambda old: {**old, "cpu": 4})
        {'cpu': 4}
        >>> limits.compare_and_set({"cpu": 4}, {"cpu": 8})
        True
    """

    __module__ = "distsync.recipes"
    _kind = "value"
    _has_versions = True

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

    def read(self, *, sync: bool = False, timeout: float | None = None) -> Versioned:
        """Return the value and its version, as the server of this client knows them.

        Args:
            sync: Whether to return the latest value: a server may lag behind the leader of the
                ensemble.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The value and its version.

        Raises:
            PayloadRefusedError: The value is unsigned, altered or unreadable.
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs 1 request, and 2 requests in 1 round trip with ``sync``.
        """
        core = self._core
        return self._decoded(self._ask(core.read_synced() if sync else core.read(), timeout))

    def get(self, *, sync: bool = False, timeout: float | None = None) -> Item:
        """Return the value, like ``read().value``.

        Args:
            sync: Whether to return the latest value: a server may lag behind the leader of the
                ensemble.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The value.

        Raises:
            PayloadRefusedError: The value is unsigned, altered or unreadable.
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs 1 request, and 2 requests in 1 round trip with ``sync``.
        """
        item: Item = self.read(sync=sync, timeout=timeout).value
        return item

    def set(self, value: Item, *, version: int | None = None, timeout: float | None = None) -> bool:
        """Set the value, or set it only if it has a given version.

        Args:
            value: The new value.
            version: Version that the value must have; None sets it whatever its version.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            True if the value was set. False if it has another version, and nothing was changed.

        Raises:
            PayloadError: The value cannot be encoded, or is too large.
            TypeError: ``version`` is neither an integer nor None.
            ValueError: No value has this version: it is -1, or exceeds 32 bits.
            OutcomeUnknownError: The session ended before the reply, and the value may or may not
                have been set.
            DeadlineError: No server answered in time, and the value may or may not be set. Subclass
                of TimeoutError.

        Note:
            Costs 1 request.
        """
        data = self._encoded(value)
        if version is None:
            self._ask(self._core.set(data), timeout)
            return True
        given = validate_int("version", version)
        if given == ANY or not MIN_VERSION <= given <= MAX_VERSION:
            raise ValueError(
                "version must be one that read() has returned, or None to set the value whatever its version, "
                f"not {given}"
            )
        return self._ask(self._core.replace(given, data), timeout) is not None

    def compare_and_set(self, expected: Item, value: Item, *, timeout: float | None = None) -> bool:
        """Set the value if it equals the expected one.

        Args:
            expected: The value that is expected.
            value: The new value.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            True if the value was set. False if it was another one at some moment of this call, and
            nothing was changed.

        Raises:
            PayloadRefusedError: The present value is unsigned, altered or unreadable.
            PayloadError: The new value cannot be encoded, or is too large.
            OutcomeUnknownError: The session ended before the reply, and the value may or may not
                have been set.
            DeadlineError: No server answered in time, and the value may or may not be set. Subclass
                of TimeoutError.

        Note:
            Costs 3 requests in 2 round trips, and as many more for each time that another process
            was faster.
        """
        with self._limited(timeout):
            while True:
                current, basis = self._read_for_update(sync=True)
                if current.value != expected:
                    return False
                if self._replace(current.version, value, basis):
                    return True

    def update(self, function: Callable[[Item], Item], *, timeout: float | None = None) -> Item:
        """Replace the value with what a function makes of it, atomically.

        Args:
            function: Called with the value; returns the new one. It may be called several times,
                and should have no side effects.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The new value.

        Raises:
            PayloadRefusedError: The present value is unsigned, altered or unreadable.
            PayloadError: The new value cannot be encoded, or is too large.
            OutcomeUnknownError: The session ended before the reply, and the value may or may not
                have been set.
            DeadlineError: No server answered in time, and the value may or may not be set. Subclass
                of TimeoutError.

        Note:
            Costs 2 requests, and 2 more for each time that another process was faster.

            If ``function`` raises an error, this raises it too, and nothing is changed.
        """
        with self._limited(timeout):
            while True:
                current, basis = self._read_for_update(sync=False)
                value = function(current.value)
                if self._replace(current.version, value, basis):
                    return value

    def _read_for_update(self, *, sync: bool) -> tuple[Versioned, Basis]:
        """Return the value, its version, and their basis."""
        node, basis = self._ask(self._core.read_for_update(sync=sync))
        return self._decoded(node), basis

    def _replace(self, version: int, value: Item, basis: Basis) -> bool:
        """Set the value if it has this version, and its basis has not changed."""
        return self._ask(self._core.replace(version, self._encoded(value), basis)) is not None

    def wait_for_change(self, timeout: float | None = None, *, version: int | None = None) -> Versioned | None:
        """Wait until the value is changed.

        Args:
            timeout: Maximum wait in seconds; 0 or less does not wait, None waits forever.
            version: Wait for a change after this version; None waits for a change after the call
                began.

        Returns:
            The new value and its version; None on timeout.

        Raises:
            PayloadRefusedError: The value is unsigned, altered or unreadable.
            TypeError: ``version`` is neither an integer nor None.

        Note:
            Costs 1 request and 1 watch, and 1 request more for the change.

            If the session ends, the wait continues in the next one. If interrupted, nothing is left
            behind.
        """
        since = None if version is None else validate_int("version", version)
        seconds = validate_timeout(timeout)
        node = self._run(self._core.changed(since), seconds)
        if node is None:
            self._late()
            return None
        return self._decoded(node)

    def __repr__(self) -> str:
        return f"<{type_name(self)} at {id(self):#x}: {self._name!r}>"
