"""Value and Array: ctypes objects whose bytes all processes share.

Rules for this file: no znode; what is in the objects is seen through views (_ctypes_views.py).

The bytes are the machine's own, as in shared memory: share them between machines of one architecture. They are not
signed and hold no pickle.
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
)
from distsync.multiprocessing._stdlib_fallback import stdlib_getattr
from distsync.multiprocessing.synchronize import RLock

if TYPE_CHECKING:
    from distsync._client.client import Client

__all__ = ["Array", "RawArray", "RawValue", "Value", "synchronized"]

TYPE_OF: dict[str, Any] = sharedctypes.typecode_to_type  # type: ignore[attr-defined]

#: Codes of ctypes for what is an address: it means nothing in another process.
ADDRESSES = "zZPOX"


def _type_of(typecode_or_type: Any) -> Any:
    kind = TYPE_OF.get(typecode_or_type, typecode_or_type)
    _check_type(kind)
    return kind


def _check_type(kind: Any) -> None:
    """Raises TypeError for what is no ctypes type, and for one with an address in it."""
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
) -> Any:
    """A ctypes object that processes share, without a lock: each read and each write is atomic by itself.

    Units, Raises, Cost, Source: as Value.
    """
    kind = _type_of(typecode_or_type)
    return ctypes_object(CtypesBytes(kind, None, bytes(kind(*args)), name=name, client=client, path=path))


def RawArray(
    typecode_or_type: Any,
    size_or_initializer: Any,
    *,
    name: str | None = None,
    client: Client | None = None,
    path: str | None = None,
) -> Any:
    """An array that processes share, without a lock: each read and each write is atomic by itself.

    Units, Raises, Cost, Source: as Array.
    """
    kind = _type_of(typecode_or_type)
    if isinstance(size_or_initializer, int):
        if size_or_initializer < 0:
            raise ValueError(f"an array cannot have {size_or_initializer} elements")
        return ctypes_object(CtypesBytes(kind, size_or_initializer, name=name, client=client, path=path))
    made = (kind * len(size_or_initializer))(*size_or_initializer)
    return ctypes_object(CtypesBytes(kind, len(made), bytes(made), name=name, client=client, path=path))


def Value(
    typecode_or_type: Any,
    *args: Any,
    lock: Any = True,
    ctx: Any = None,
    name: str | None = None,
    client: Client | None = None,
    path: str | None = None,
) -> Any:
    """A ctypes object that processes share, and a lock that each access takes: ``value``, or a Structure's fields.

    Each read asks the server, each write is a compare-and-set of the whole, so that two who write different fields at
    once lose nothing, with or without the lock. ``with v.get_lock(): v.value += 1`` excludes all others meanwhile.

    Units: 990,000 bytes at most. ``lock``: True or None, an RLock of its own; any lock; False: as RawValue.
    Returns: as ``multiprocessing.Value``, what `synchronized` makes.
    Raises: PayloadTooLargeError (a ValueError); TypeError for a type that has addresses in it; MismatchError at the
        first access if the name is that of an object of another size.
    Cost: an access 2 requests to read or 1 to write (3 if another process has changed it), and 3 for the lock unless
        this thread holds it.
    Source: ``multiprocessing.Value``.

    >>> hits = Value("i", 0, name="hits")
    >>> with hits.get_lock():
    ...     hits.value += 1
    >>> hits.value
    1
    """
    made = RawValue(typecode_or_type, *args, name=name, client=client, path=path)
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
) -> Any:
    """An array that processes share, with a lock that each access takes: elements, slices; ``value``, ``raw`` of chars.

    Units: elements, 990,000 bytes together at most. ``lock``: as Value.
    Returns: as ``multiprocessing.Array``, what `synchronized` makes.
    Raises: as Value.
    Cost: an access, of one element or of a slice, as Value. Iteration is one access.
    Source: ``multiprocessing.Array``.

    >>> squares = Array("i", 4, name="squares")
    >>> squares[:] = [0, 1, 4, 9]
    >>> squares[1:3]
    [1, 4]
    """
    made = RawArray(typecode_or_type, size_or_initializer, name=name, client=client, path=path)
    return made if lock is False else synchronized(made, lock)


# ---- with a lock


class SynchronizedBase(LockDelegate):
    """A shared object, and the lock that each access to it takes."""

    def __init__(self, raw: Any, lock: Any = None) -> None:
        self._raw = raw
        self._explicit_lock = lock
        self._made_lock: RLock | None = None

    def get_obj(self) -> Any:
        """The object without its lock. Cost: no request."""
        return self._raw

    def get_lock(self) -> Any:
        """The lock that each access takes: the one that was given, or an RLock, the same for all processes."""
        if self._explicit_lock is not None:
            return self._explicit_lock
        cell: CtypesBytes = self._raw._cell
        cell.core  # noqa: B018  what is below its znode goes with it
        path = f"{cell.path}/lock"
        if self._made_lock is None or self._made_lock.path != path:
            self._made_lock = RLock(client=cell._explicit_client, path=path)
            self._made_lock.__dict__["_of"] = cell  # which is there as long as its lock is
        return self._made_lock

    def acquire(self, *args: Any, **keywords: Any) -> bool:
        """As that of the lock."""
        acquired: bool = self.get_lock().acquire(*args, **keywords)
        return acquired

    def release(self) -> None:
        """As that of the lock."""
        self.get_lock().release()

    def _its_lock(self) -> Any:
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
    """A number or character with its lock."""

    value = _locked("value")


class SynchronizedArray(SynchronizedBase):
    """An array with its lock."""

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


class SynchronizedText(SynchronizedArray):
    """An array of characters with its lock."""

    value = _locked("value")


class SynchronizedString(SynchronizedText):
    """An array of bytes with its lock."""

    raw = _locked("raw")


_WRAPPERS: dict[Any, Any] = {
    RawNumber: Synchronized,
    RawSequence: SynchronizedArray,
    RawText: SynchronizedText,
    RawBytes: SynchronizedString,
}


def synchronized(raw: Any, lock: Any = None) -> Any:
    """``raw``, a RawValue or RawArray, with a lock that each access takes; None or True: an RLock of its own."""
    assert not isinstance(raw, SynchronizedBase), "object already synchronized"
    lock = None if lock is True else lock
    if lock is not None and not hasattr(lock, "acquire"):
        raise AttributeError(f"{lock!r} has no method 'acquire'")
    if isinstance(raw, RawRecord):
        fields = {name: _locked(name) for name in fields_of(raw._type)}
        return type(f"Synchronized{raw._type.__name__}", (SynchronizedBase,), fields)(raw, lock)
    return _WRAPPERS[type(raw)](raw, lock)


__getattr__ = stdlib_getattr("multiprocessing.sharedctypes", __name__)
