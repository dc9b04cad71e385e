"""Value and Array: ctypes objects whose bytes are shared by processes and hosts.

The bytes are in the byte order and layout of the machine, as in shared memory, so share them
between machines of one architecture only. They are not signed, and contain no pickles.
"""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import sharedctypes
from typing import TYPE_CHECKING, Any

from distsync._objects.locks import LockDelegate
from distsync.multiprocessing._ctypes_views import (
    CtypesBytes,
    RawBytes,
    RawNumber,
    RawRecord,
    RawSequence,
    RawText,
    all_fields,
    ctypes_object,
    fields_of,
    numpy_copy,
)
from distsync.multiprocessing._stdlib_names import stdlib_getattr
from distsync.multiprocessing.synchronize import RLock

if TYPE_CHECKING:
    from distsync._client.client import Client

__all__ = ["Array", "RawArray", "RawValue", "Value", "synchronized"]

TYPE_OF: dict[str, Any] = sharedctypes.typecode_to_type  # type: ignore[attr-defined]

#: Type codes of ctypes that are addresses, which are meaningless in another process.
ADDRESSES = "zZPOX"


def _type_of(typecode_or_type: Any) -> Any:
    kind = TYPE_OF.get(typecode_or_type, typecode_or_type)
    _check_type(kind)
    return kind


def _check_type(kind: Any) -> None:
    """Raise TypeError if ``kind`` is not a ctypes type, or if it contains an address."""
    if not isinstance(kind, type) or not hasattr(kind, "from_buffer_copy"):
        raise TypeError(f"{kind!r} is neither a type code ({''.join(TYPE_OF)}) nor a ctypes type")
    code = getattr(kind, "_type_", None)
    if isinstance(code, str) and code in ADDRESSES or hasattr(kind, "contents"):
        raise TypeError(f"{kind.__name__} is an address, which means nothing in another process")
    if isinstance(code, type):
        _check_type(code)
    for field in all_fields(kind):
        _check_type(field[1])


def RawValue(
    typecode_or_type: Any,
    *args: Any,
    name: str | None = None,
    client: Client | None = None,
    path: str | None = None,
    on_mismatch: str = "error",
) -> Any:
    """Create a shared ctypes object without a lock. Each read and each write is atomic.

    Args:
        typecode_or_type: Type code of the ``array`` module, or a ctypes type.
        *args: Arguments of the type's constructor: the initial value.
        name: Name of the value, shared by all processes that use it. Without a name, a value
            assigned at module or class level is named after its variable; any other value gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the value's znode, instead of a name.
        on_mismatch: What the first access does while other processes use another size: ``"error"``
            raises MismatchError, and ``"wait"`` waits until they have ended. If none does, the object
            begins again with our size and initial value in each case.

    Returns:
        An object with the attribute ``value``, or with the fields of the Structure.

    Raises:
        TypeError: The type is not a ctypes type, or contains an address; or both a name and a path
            are given.
        PayloadTooLargeError: The object is larger than 990,000 bytes. Subclass of ValueError.
        ConfigurationError: ``on_mismatch`` is neither ``"error"`` nor ``"wait"``.

    Note:
        The first access raises MismatchError if other processes use the name with another size.

        Reading costs 2 requests in 1 round trip. Writing a number costs 1 request, and 2 more if
        this process has not read it before. Writing a field costs 1 request if this process made
        the last change, otherwise 3.

        Source: ``multiprocessing.RawValue``.
    """
    kind = _type_of(typecode_or_type)
    return ctypes_object(
        CtypesBytes(kind, None, bytes(kind(*args)), name=name, client=client, path=path, on_mismatch=on_mismatch)
    )


def RawArray(
    typecode_or_type: Any,
    size_or_initializer: Any,
    *,
    name: str | None = None,
    client: Client | None = None,
    path: str | None = None,
    on_mismatch: str = "error",
) -> Any:
    """Create a shared ctypes array without a lock. Each read and each write is atomic.

    Args:
        typecode_or_type: Type code of the ``array`` module, or a ctypes type.
        size_or_initializer: Number of elements, which are 0 initially, or the initial elements.
        name: Name of the array, shared by all processes that use it. Without a name, an array
            assigned at module or class level is named after its variable; any other array gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the array's znode, instead of a name.
        on_mismatch: What the first access does while other processes use another size: ``"error"``
            raises MismatchError, and ``"wait"`` waits until they have ended. If none does, the object
            begins again with our size and initial value in each case.

    Returns:
        A sequence. An array of characters also has the attribute ``value``, and one of bytes
        ``raw``.

    Raises:
        TypeError: The type is not a ctypes type, or contains an address; or both a name and a path
            are given.
        ValueError: The number of elements is negative.
        PayloadTooLargeError: The array is larger than 990,000 bytes. Subclass of ValueError.
        ConfigurationError: ``on_mismatch`` is neither ``"error"`` nor ``"wait"``.

    Note:
        The first access raises MismatchError if other processes use the name with another size.

        Reading costs 2 requests in 1 round trip. Writing costs 1 request if this process made the
        last change, otherwise 3. A slice, or an iteration, is one access.

        NumPy cannot share the memory: ``numpy.asarray`` raises TypeError. Read a copy with
        ``numpy.array(a[:])``, and write with ``a[:] = copy.tolist()``.

        Source: ``multiprocessing.RawArray``.
    """
    kind = _type_of(typecode_or_type)
    if isinstance(size_or_initializer, int):
        if size_or_initializer < 0:
            raise ValueError(f"an array cannot have {size_or_initializer} elements")
        return ctypes_object(
            CtypesBytes(kind, size_or_initializer, name=name, client=client, path=path, on_mismatch=on_mismatch)
        )
    made = (kind * len(size_or_initializer))(*size_or_initializer)
    return ctypes_object(
        CtypesBytes(kind, len(made), bytes(made), name=name, client=client, path=path, on_mismatch=on_mismatch)
    )


def Value(
    typecode_or_type: Any,
    *args: Any,
    lock: Any = True,
    ctx: Any = None,
    name: str | None = None,
    client: Client | None = None,
    path: str | None = None,
    on_mismatch: str = "error",
) -> Any:
    """Create a shared ctypes object with a lock, like ``multiprocessing.Value``.

    Each access to ``value``, or to a field of a Structure, acquires the lock. Each read asks the
    server. Each write of a field is a compare-and-set of the whole object, so concurrent writes of
    different fields are all kept, with or without the lock. Use ``with v.get_lock(): v.value += 1`` to
    exclude all other processes.

    Args:
        typecode_or_type: Type code of the ``array`` module, or a ctypes type.
        *args: Arguments of the type's constructor: the initial value.
        lock: True or None creates an RLock. A lock is used as it is. False creates a RawValue.
        ctx: Ignored; multiprocessing passes its context.
        name: Name of the value, shared by all processes that use it. Without a name, a value
            assigned at module or class level is named after its variable; any other value gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the value's znode, instead of a name.
        on_mismatch: What the first access does while other processes use another size: ``"error"``
            raises MismatchError, and ``"wait"`` waits until they have ended. If none does, the object
            begins again with our size and initial value in each case.

    Returns:
        The object that `synchronized` creates; a RawValue if ``lock`` is False.

    Raises:
        TypeError: The type is not a ctypes type, or contains an address; or both a name and a path
            are given.
        AttributeError: ``lock`` is not a lock.
        PayloadTooLargeError: The object is larger than 990,000 bytes. Subclass of ValueError.
        ConfigurationError: ``on_mismatch`` is neither ``"error"`` nor ``"wait"``.

    Note:
        The first access raises MismatchError if other processes use the name with another size.

        Reading costs 2 requests in 1 round trip. Writing a number costs 1 request, and 2 more if
        this process has not read it before. Writing a field costs 1 request if this process made
        the last change, otherwise 3. The lock costs as many more as RLock, and none if this thread
        holds it.

        Source: ``multiprocessing.Value``.

    Example:
        >>> hits = Value("i", 0, name="hits")
        >>> with hits.get_lock():
        ...     hits.value += 1
        >>> hits.value
        1
    """
    made = RawValue(typecode_or_type, *args, name=name, client=client, path=path, on_mismatch=on_mismatch)
    return made if lock is False else synchronized(made, lock)


def Array(
    typecode_or_type: Any,
    size_or_initializer: Any,
    *,
    lock: Any = True,
    ctx: Any = None,
    name: str | None = None,
    client: Client | None = None,
    path: str | None = None,
    on_mismatch: str = "error",
) -> Any:
    """Create a shared ctypes array with a lock, like ``multiprocessing.Array``.

    Each access acquires the lock: to an element or slice, and to ``value`` or ``raw`` of an array
    of characters.

    Args:
        typecode_or_type: Type code of the ``array`` module, or a ctypes type.
        size_or_initializer: Number of elements, which are 0 initially, or the initial elements.
        lock: True or None creates an RLock. A lock is used as it is. False creates a RawArray.
        ctx: Ignored; multiprocessing passes its context.
        name: Name of the array, shared by all processes that use it. Without a name, an array
            assigned at module or class level is named after its variable; any other array gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the array's znode, instead of a name.
        on_mismatch: What the first access does while other processes use another size: ``"error"``
            raises MismatchError, and ``"wait"`` waits until they have ended. If none does, the object
            begins again with our size and initial value in each case.

    Returns:
        The array that `synchronized` creates; a RawArray if ``lock`` is False.

    Raises:
        TypeError: The type is not a ctypes type, or contains an address; or both a name and a path
            are given.
        ValueError: The number of elements is negative.
        AttributeError: ``lock`` is not a lock.
        PayloadTooLargeError: The array is larger than 990,000 bytes. Subclass of ValueError.
        ConfigurationError: ``on_mismatch`` is neither ``"error"`` nor ``"wait"``.

    Note:
        The first access raises MismatchError if other processes use the name with another size.

        Reading costs 2 requests in 1 round trip. Writing costs 1 request if this process made the
        last change, otherwise 3. The lock costs as many more as RLock, and none if this thread
        holds it. A slice, or an iteration, is one access.

        ``numpy.asarray`` makes a copy, also in multiprocessing. For ``get_obj()`` it raises TypeError, as
        NumPy cannot share the memory: write with ``a[:] = copy.tolist()``.

        Source: ``multiprocessing.Array``.

    Example:
        >>> squares = Array("i", 4, name="squares")
        >>> squares[:] = [0, 1, 4, 9]
        >>> squares[1:3]
        [1, 4]
    """
    made = RawArray(typecode_or_type, size_or_initializer, name=name, client=client, path=path, on_mismatch=on_mismatch)
    return made if lock is False else synchronized(made, lock)


# ---- with a lock


class SynchronizedBase(LockDelegate):
    """A shared object with a lock that each access acquires.

    Args:
        raw: The shared object.
        lock: The lock; None creates an RLock that belongs to the object.
    """

    def __init__(self, raw: Any, lock: Any = None) -> None:
        self._raw = raw
        self._explicit_lock = lock
        self._made_lock: RLock | None = None

    def get_obj(self) -> Any:
        """Return the object without its lock.

        Returns:
            The RawValue or RawArray.

        Note:
            Costs no request.
        """
        return self._raw

    def get_lock(self) -> Any:
        """Return the lock that each access acquires.

        Returns:
            The given lock, or an RLock that all processes share.
        """
        if self._explicit_lock is not None:
            return self._explicit_lock
        cell: CtypesBytes = self._raw._cell
        cell.core  # noqa: B018  so that znodes below the cell's are deleted with it
        path = f"{cell.path}/lock"
        if self._made_lock is None or self._made_lock.path != path:
            self._made_lock = RLock(client=cell._explicit_client, path=path)
            self._made_lock._bind(cell._module)
            self._made_lock.__dict__["_of"] = cell  # the cell must live as long as its lock
        return self._made_lock

    def destroy(self, timeout: float | None = None) -> None:
        """Delete the object for all processes, with its own lock; a given lock stays.

        The next access creates it with its initial value.

        Args:
            timeout: Maximum wait in seconds; None uses the client's default, and -1 waits forever.

        Raises:
            ValueError: The given path contains other objects. Nothing was deleted.
            DeadlineError: The object was not deleted in time. Subclass of TimeoutError.
            AccessDeniedError: An ACL denies the access.

        Note:
            Costs, losses and interrupts are those of ``Lock.destroy``.
        """
        self._raw.destroy(timeout)

    def _underlying_lock(self) -> Any:
        return self.get_lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return synchronized, (self._raw, self._explicit_lock)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} wrapper for {self._raw!r}>"


def _locked(name: str) -> property:
    def get(self: SynchronizedBase) -> Any:
        with self:
            return getattr(self._raw, name)

    def change(self: SynchronizedBase, value: Any) -> None:
        with self:
            setattr(self._raw, name, value)

    return property(get, change)


class Synchronized(SynchronizedBase):
    """A shared number or character with a lock."""

    value = _locked("value")


class SynchronizedArray(SynchronizedBase):
    """A shared array with a lock."""

    def __len__(self) -> int:
        return len(self._raw)

    def __getitem__(self, index: Any) -> Any:
        with self:
            return self._raw[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        with self:
            self._raw[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return a NumPy array with a copy of all elements, like that of ``multiprocessing.Array``."""
        if copy is False:
            raise ValueError(f"NumPy needs a copy of {self!r}: call numpy.array, or numpy.asarray without copy=False")
        with self:
            return numpy_copy(self._raw, dtype)


class SynchronizedText(SynchronizedArray):
    """A shared array of characters with a lock."""

    value = _locked("value")


class SynchronizedString(SynchronizedText):
    """A shared array of bytes with a lock."""

    raw = _locked("raw")


_WRAPPERS: dict[Any, Any] = {
    RawNumber: Synchronized,
    RawSequence: SynchronizedArray,
    RawText: SynchronizedText,
    RawBytes: SynchronizedString,
}


def synchronized(raw: Any, lock: Any = None) -> Any:
    """Wrap a shared object in one that acquires a lock for each access.

    Args:
        raw: A RawValue or RawArray.
        lock: The lock; None or True creates an RLock that belongs to the object.

    Returns:
        The wrapper.

    Raises:
        AttributeError: ``lock`` is not a lock.
        AssertionError: ``raw`` is such a wrapper already.
    """
    assert not isinstance(raw, SynchronizedBase), "object already synchronized"
    lock = None if lock is True else lock
    if lock is not None and not hasattr(lock, "acquire"):
        raise AttributeError(f"{lock!r} has no method 'acquire'")
    if isinstance(raw, RawRecord):
        fields = {name: _locked(name) for name in fields_of(raw._type)}
        return type(f"Synchronized{raw._type.__name__}", (SynchronizedBase,), fields)(raw, lock)
    return _WRAPPERS[type(raw)](raw, lock)


__getattr__ = stdlib_getattr("multiprocessing.sharedctypes", __name__)
