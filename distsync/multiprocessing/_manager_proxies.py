"""The containers that a Manager makes: dict, list, Namespace, Value and Array, whole in one cell each.

Rules for this file: no znode; what a method does is what the method of the real dict or list does to a copy, which is
then written if nobody else has written meanwhile, and else done again to what he has written.

So each operation is atomic, also those on many keys (update, sort, popitem), and of two that change different keys at
once none is lost. A function that an operation is given (the key of sort) may be called several times. All of a
container is in one znode: 1,000,000 bytes at most, and each change writes all of it.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from distsync._protocols.steps import Watch
from distsync.multiprocessing._atomic_bytes import Cell

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync._client.payload_codec import Codec

__all__ = ["ArrayProxy", "DictProxy", "ListProxy", "NamespaceProxy", "ValueProxy"]

Result = TypeVar("Result")


class Shared(Cell):
    """A value that pickles, kept in one cell.

    Cost: to read 2 requests, 1 round trip; to change 1 if this process has changed it last, else 3, and 3 more each
        time that somebody else was faster. Walking through it reads it once, and again after each change by others.
    Source: ``multiprocessing.managers``, without its server.
    """

    #: What multiprocessing calls it.
    _typeid: ClassVar[str]

    def __init__(self, *, name: str | None = None, client: Client | None = None, path: str | None = None) -> None:
        super().__init__(None, name, client, path)

    def _begin_with(self, value: Any) -> None:
        """It is there, as this if nobody has made it before."""
        self.make(self._codec.encode(value, self.path))

    @property
    def _codec(self) -> Codec:
        codec: Codec = self.client.codec
        return codec

    def _getvalue(self) -> Any:
        """A copy of what it is now. Cost: 2 requests, 1 round trip."""
        return self._codec.decode(self.read().data, self.path)

    def _apply(self, function: Callable[[Any], Result]) -> Result:
        """What ``function`` does to the value has happened; its result."""
        results: list[Result] = []
        codec, path = self._codec, self.path

        def change(data: bytes) -> bytes | None:
            value = codec.decode(data, path)
            results[:] = [function(value)]
            changed = codec.encode(value, path)
            return None if changed == data else changed

        self.change(change)
        return results[0]

    def _snapshots(self) -> Iterator[Any]:
        """What it is now, at each step; it is read again only if somebody has changed it."""
        value, watch, writes = None, None, -1
        while True:
            core = self.core
            if watch is None or watch.fired or writes != core.writes:
                watch, writes = Watch(), core.writes
                value = self._codec.decode(self.read(watch).data, self.path)
            yield value

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._getvalue()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object, typeid {self._typeid!r} at {id(self):#x}>"

    def __str__(self) -> str:
        return str(self._getvalue())


def read_method(method: Any) -> Any:
    """The method of the real object, on a copy."""

    @wraps(method)
    def read(self: Shared, /, *args: Any, **keywords: Any) -> Any:
        return method(self._getvalue(), *map(unwrap, args), **keywords)

    return _documented(read)


def write_method(method: Any, returns_self: bool = False) -> Any:
    """The method of the real object, on what it is when its outcome is written."""

    @wraps(method)
    def change(self: Shared, /, *args: Any, **keywords: Any) -> Any:
        arguments = [_listed(arg) for arg in args]  # it may be done several times
        found = self._apply(lambda value: method(value, *arguments, **keywords))
        return self if returns_self else found

    return _documented(change)


def _documented(function: Any) -> Any:
    """Its doc string is that of the real object, of which distsync's has the first sentence."""
    first = (function.__doc__ or function.__name__).strip().split("\n")[0]
    function.__doc__ = f"{first.rstrip('.')}."
    function.__module__ = __name__
    return function


def unwrap(value: Any) -> Any:
    """What an operator is given besides: of a container what is in it."""
    return value._getvalue() if isinstance(value, (DictProxy, ListProxy, ArrayProxy)) else value


def _listed(value: Any) -> Any:
    """An iterator gives its items only once."""
    return list(value) if isinstance(value, Iterator) else value


class DictProxy(Shared):
    """A dict that processes share.

    ``keys``, ``values`` and ``items`` are lists, as multiprocessing's. What is got is a copy: to change a list that is
    a value, set it again, or make it a list of the manager's, which stays one wherever it is put.
    Units: 1,000,000 bytes at most, all keys and values together.
    Raises: PayloadPickleError for what does not pickle, PayloadTooLargeError, and then nothing was changed;
    ObjectRemovedError
        when its manager has shut down; OutcomeUnknownError when the session ended in this moment and nobody can know.
    On cancel: a change has happened, or not.
    Cost: to read 2 requests, 1 round trip; to change 1 if this process has changed it last, else 3.
    Source: ``multiprocessing.managers.DictProxy``.
    """

    __module__ = "distsync.multiprocessing.managers"

    _typeid = "dict"
    __hash__ = None  # type: ignore[assignment]

    __contains__ = read_method(dict.__contains__)
    __eq__ = read_method(dict.__eq__)
    __getitem__ = read_method(dict.__getitem__)
    __len__ = read_method(dict.__len__)
    __ne__ = read_method(dict.__ne__)
    __or__ = read_method(dict.__or__)
    __ror__ = read_method(dict.__ror__)
    get = read_method(dict.get)

    __delitem__ = write_method(dict.__delitem__)
    __setitem__ = write_method(dict.__setitem__)
    clear = write_method(dict.clear)
    pop = write_method(dict.pop)
    popitem = write_method(dict.popitem)
    setdefault = write_method(dict.setdefault)

    def update(self, other: Any = (), /, **more: Any) -> None:
        """All of these keys have these values, from one moment on; as ``dict.update``."""
        new = dict(unwrap(other), **more)
        self._apply(lambda value: value.update(new))

    def __ior__(self, other: Any) -> DictProxy:  # type: ignore[misc]
        self.update(other)
        return self

    def copy(self) -> dict[Any, Any]:
        """A dict with what is in it now."""
        found: dict[Any, Any] = self._getvalue()
        return found

    def keys(self) -> list[Any]:
        """The keys, in the order in which they came."""
        return list(self._getvalue())

    def values(self) -> list[Any]:
        """The values, in the order of their keys."""
        return list(self._getvalue().values())

    def items(self) -> list[tuple[Any, Any]]:
        """Keys and values of one moment."""
        return list(self._getvalue().items())

    def __iter__(self) -> Iterator[Any]:
        """The keys. RuntimeError as soon as there are more or fewer."""
        snapshots = self._snapshots()
        return self._walk(list(next(snapshots)), snapshots)

    def _walk(self, keys: list[Any], snapshots: Iterator[Any]) -> Iterator[Any]:
        for key in keys:
            if len(next(snapshots)) != len(keys):
                raise RuntimeError("dictionary changed size during iteration")
            yield key

    def __reversed__(self) -> Iterator[Any]:
        return iter(self.keys()[::-1])


class ListProxy(Shared):
    """A list that processes share.

    Units: 1,000,000 bytes at most, all items together.
    Raises, On cancel, Cost: as DictProxy.
    Source: ``multiprocessing.managers.ListProxy``.
    """

    __module__ = "distsync.multiprocessing.managers"

    _typeid = "list"
    __hash__ = None  # type: ignore[assignment]

    __add__ = read_method(list.__add__)
    __contains__ = read_method(list.__contains__)
    __eq__ = read_method(list.__eq__)
    __ge__ = read_method(list.__ge__)
    __getitem__ = read_method(list.__getitem__)
    __gt__ = read_method(list.__gt__)
    __le__ = read_method(list.__le__)
    __len__ = read_method(list.__len__)
    __lt__ = read_method(list.__lt__)
    __mul__ = read_method(list.__mul__)
    __ne__ = read_method(list.__ne__)
    __reversed__ = read_method(list.__reversed__)
    __rmul__ = read_method(list.__rmul__)
    copy = read_method(list.copy)
    count = read_method(list.count)
    index = read_method(list.index)

    __delitem__ = write_method(list.__delitem__)
    __iadd__ = write_method(list.__iadd__, returns_self=True)
    __imul__ = write_method(list.__imul__, returns_self=True)
    __setitem__ = write_method(list.__setitem__)
    append = write_method(list.append)
    clear = write_method(list.clear)
    extend = write_method(list.extend)
    insert = write_method(list.insert)
    pop = write_method(list.pop)
    remove = write_method(list.remove)
    reverse = write_method(list.reverse)
    sort = write_method(list.sort)

    def __iter__(self) -> Iterator[Any]:
        """The items, as they are when their turn comes."""
        for place, found in enumerate(self._snapshots()):
            if place >= len(found):
                return
            yield found[place]


class ArrayProxy(Shared):
    """An ``array.array`` that processes share, as ``Manager().Array``; for ctypes there is ``multiprocessing.Array``.

    Units: 1,000,000 bytes at most.
    Raises, On cancel, Cost: as DictProxy.
    Source: ``multiprocessing.managers.ArrayProxy``.
    """

    __module__ = "distsync.multiprocessing.managers"

    _typeid = "Array"
    __hash__ = None  # type: ignore[assignment]

    __eq__ = read_method(array.array.__eq__)
    __getitem__ = read_method(array.array.__getitem__)
    __len__ = read_method(array.array.__len__)
    __setitem__ = write_method(array.array.__setitem__)

    __iter__ = ListProxy.__iter__


class ValueProxy(Shared):
    """Anything that pickles, shared, as ``Manager().Value``; the type code is not looked at.

    Units: 1,000,000 bytes at most.
    Raises, On cancel, Cost: as DictProxy.
    Source: ``multiprocessing.managers.ValueProxy``.
    """

    __module__ = "distsync.multiprocessing.managers"

    _typeid = "Value"

    def get(self) -> Any:
        """The value. Cost: 2 requests, 1 round trip."""
        return self._getvalue()[0]

    def set(self, value: Any) -> None:
        """The value is this one. Cost: 1 request if this process has changed it last, else 3."""
        self._apply(lambda box: box.__setitem__(0, value))

    value = property(get, set)

    def __str__(self) -> str:
        return f"Value({self.get()!r})"


class NamespaceProxy:
    """An object that processes share, whose attributes may be anything that pickles.

    Attributes that begin with an underscore are this object's own, as multiprocessing's.
    Units: 1,000,000 bytes at most, all attributes together.
    Raises, On cancel, Cost: as DictProxy.
    Source: ``multiprocessing.managers.Namespace``.
    """

    __module__ = "distsync.multiprocessing.managers"

    def __init__(self, shared: DictProxy) -> None:
        self._shared = shared

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._shared[name]
        except KeyError:
            raise AttributeError(f"'Namespace' object has no attribute {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            self._shared[name] = value

    def __delattr__(self, name: str) -> None:
        if name.startswith("_"):
            object.__delattr__(self, name)
            return
        try:
            del self._shared[name]
        except KeyError:
            raise AttributeError(f"'Namespace' object has no attribute {name!r}") from None

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._shared.keys()})

    def __reduce__(self) -> tuple[Any, ...]:
        return NamespaceProxy, (self._shared,)

    def __repr__(self) -> str:
        return f"<NamespaceProxy object, typeid 'Namespace' at {id(self):#x}>"

    def __str__(self) -> str:
        return f"Namespace({', '.join(sorted(f'{name}={value!r}' for name, value in self._shared.items()))})"
