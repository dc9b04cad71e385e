"""The containers of a Manager: dict, list, Namespace, Value and Array, each in one znode.

A method of a container calls the method of the real dict or list on a copy. A changed copy is
written if no other process has written in between. Otherwise the method is called again, on what
the other process has written.

So each operation is atomic, including those on many keys (update, sort, popitem), and concurrent
changes of different keys are all kept. A function that is passed to an operation (the key of sort)
may be called several times. A container may be 1,000,000 bytes long, and each change writes all of
it.

The values of a dict and the items of a list are pickled one by one, and unpickled when they are used.
So one that cannot be unpickled stops only the operations that use it. A pickled container is a tuple
of one element, the dict or list. Each of its bytes objects is a pickle; other values are numbers and
texts.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Iterable, Iterator
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from distsync._protocols.steps import Watch
from distsync.multiprocessing._atomic_bytes import Cell

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync._client.payload_codec import Codec

__all__ = ["ArrayProxy", "DictProxy", "ListProxy", "NamespaceProxy", "ValueProxy"]

Result = TypeVar("Result")


#: Types whose values are not pickled one by one, because any process can unpickle them.
INLINE = frozenset({bool, float, int, str, type(None)})


class Encoded:
    """A value of a container, as a pickle. It is equal to what its value is equal to."""

    __slots__ = ("_decode", "data")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, data: bytes, decode: Callable[[bytes], Any]) -> None:
        self.data, self._decode = data, decode

    def value(self) -> Any:
        return self._decode(self.data)

    def __eq__(self, other: object) -> bool:
        return bool(self.value() == _decoded(other))


def _decoded(found: Any) -> Any:
    """Return the value of what was found in a container: an element, a slice of a list, or a pair of a dict."""
    if type(found) is Encoded:
        return found.value()
    if type(found) in (list, tuple) and any(type(each) is Encoded for each in found):
        return type(found)(map(_decoded, found))
    return found


class Shared(Cell):
    """A shared value that pickles, in one znode.

    Args:
        name: Name of the value, shared by all processes that use it. Without a name, a value
            assigned at module or class level is named after its variable; any other value gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the value's znode, instead of a name.

    Raises:
        TypeError: Both a name and a path are given.

    Note:
        Reading costs 2 requests in 1 round trip. Changing costs 1 request if this process made the
        last change, otherwise 3. It costs 3 more each time another process was faster. Iterating
        reads the value once, and again after each change by another process.

        Source: ``multiprocessing.managers``, without its server.
    """

    #: Name of the type in multiprocessing.
    _typeid: ClassVar[str]

    def __init__(self, *, name: str | None = None, client: Client | None = None, path: str | None = None) -> None:
        super().__init__(None, name, client, path)

    def _begin_with(self, value: Any) -> None:
        """Create the znode with this value, unless it exists."""
        self.make(self._encode(value))

    def _encode(self, container: Any) -> bytes:
        """Return a container, whose values may be Encoded, as bytes."""
        codec = self._codec
        if codec.has_parts and type(container) is dict:
            container = ({key: _part(codec, value) for key, value in container.items()},)
        elif codec.has_parts and type(container) is list:
            container = ([_part(codec, value) for value in container],) if self._typeid == "list" else container
        return codec.encode(container, self.path)

    def _decode(self, data: bytes) -> Any:
        """Return the container in ``data``, in which values that may not unpickle are Encoded."""
        codec, path = self._codec, self.path
        found = codec.decode(data, path)
        if type(found) is not tuple:
            return found
        decode = partial(codec.decode_part, context=path)
        (container,) = found
        if type(container) is dict:
            return {key: Encoded(each, decode) if type(each) is bytes else each for key, each in container.items()}
        return [Encoded(each, decode) if type(each) is bytes else each for each in container]

    @property
    def _codec(self) -> Codec:
        codec: Codec = self.client.codec
        return codec

    def _getvalue(self) -> Any:
        """Return a copy of the current value.

        Note:
            Costs 2 requests in 1 round trip.
        """
        found = self._read_container()
        if type(found) is dict:
            return {key: _decoded(each) for key, each in found.items()}
        return [_decoded(each) for each in found] if type(found) is list else found

    def _read_container(self) -> Any:
        """Return the current container, whose values may be Encoded."""
        return self._decode(self.read().data)

    def _apply(self, function: Callable[[Any], Result]) -> Result:
        """Change the container with ``function``, atomically, and return the result of ``function``."""
        results: list[Result] = []

        def change(data: bytes) -> bytes | None:
            container = self._decode(data)
            results[:] = [_decoded(function(container))]
            changed = self._encode(container)
            return None if changed == data else changed

        self.change(change)
        return results[0]

    def _replace(self, container: Any) -> None:
        """Replace the container, whatever it is."""
        changed = self._encode(container)
        self.change(lambda data: None if changed == data else changed)

    def _snapshots(self) -> Iterator[Any]:
        """Yield the current container at each step. It is read again only if it was changed."""
        value, watch, writes = None, None, -1
        while True:
            core = self.core
            if watch is None or watch.fired or writes != core.writes:
                watch, writes = Watch(), core.writes
                value = self._decode(self.read(watch).data)
            yield value

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._getvalue()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object, typeid {self._typeid!r} at {id(self):#x}>"

    def __str__(self) -> str:
        return str(self._getvalue())


def read_method(method: Any) -> Any:
    """Return a method that calls ``method`` on a copy of the value.

    Args:
        method: The method of the real class.

    Returns:
        The method of the proxy.
    """

    @wraps(method)
    def read(self: Shared, /, *args: Any, **keywords: Any) -> Any:
        return method(self._getvalue(), *map(unwrap, args), **keywords)

    return _documented(read)


def element_method(method: Any) -> Any:
    """Return a method that calls ``method`` on a container whose values are Encoded, and decodes its result.

    Args:
        method: The method of the real class. It uses values only to compare or return them.

    Returns:
        The method of the proxy.
    """

    @wraps(method)
    def read(self: Shared, /, *args: Any, **keywords: Any) -> Any:
        return _decoded(method(self._read_container(), *map(unwrap, args), **keywords))

    return _documented(read)


def write_method(method: Any, returns_self: bool = False, call: Any = None) -> Any:
    """Return a method that calls ``method`` on the value, and writes the changed value.

    Args:
        method: The method of the real class.
        returns_self: Whether the method returns the proxy, as an in-place operator does.
        call: What to call in its place, on a container whose values are Encoded; None calls ``method``.

    Returns:
        The method of the proxy.
    """

    @wraps(method)
    def change(self: Shared, /, *args: Any, **keywords: Any) -> Any:
        arguments = [_listed(arg) for arg in args]  # it may be done several times

        def once(container: Any) -> Any:
            found = (call or method)(container, *arguments, **keywords)
            return self if returns_self else found

        return self._apply(once)

    return _documented(change)


def _part(codec: Codec, value: Any) -> Any:
    """Return what represents a value in an encoded container."""
    if type(value) is Encoded:
        return value.data
    return value if type(value) in INLINE else codec.encode_part(value)


def clear_method(kind: Callable[[], Any], method: Any) -> Any:
    """Return a method that empties a container, whether its values can be unpickled or not.

    Args:
        kind: The real class.
        method: Its method.

    Returns:
        The method of the proxy.
    """

    @wraps(method)
    def clear(self: Shared, /) -> None:
        self._replace(kind())

    return _documented(clear)


def _sort(items: list[Any], /, **keywords: Any) -> None:
    values = [_decoded(each) for each in items]
    values.sort(**keywords)
    items[:] = values


def _documented(function: Any) -> Any:
    """Give a method the first sentence of the real method's docstring."""
    first = (function.__doc__ or function.__name__).strip().split("\n")[0]
    function.__doc__ = f"{first.rstrip('.')}."
    function.__module__ = __name__
    return function


def unwrap(value: Any) -> Any:
    """Return the value of a container; return any other operand as it is.

    Args:
        value: An operand.

    Returns:
        A copy of the container's value, or the operand.
    """
    return value._getvalue() if isinstance(value, (DictProxy, ListProxy, ArrayProxy)) else value


def _listed(value: Any) -> Any:
    """Return the items of an iterator as a list, because the method may be called several times."""
    return list(value) if isinstance(value, Iterator) else value


class DictProxy(Shared):
    """A shared dict, like ``multiprocessing.managers.DictProxy``.

    ``keys``, ``values`` and ``items`` return lists, as in multiprocessing. All returned values are
    copies. To change a list that is a value, set it again, or use a list of the manager, which is a
    reference wherever it is put.

    All keys and values together may be 1,000,000 bytes long. A value that this process cannot
    unpickle stops only the calls that return or compare it.

    Args:
        name: Name of the dict, shared by all processes that use it. Without a name, a dict assigned
            at module or class level is named after its variable; any other dict gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the dict's znode, instead of a name.

    Raises:
        TypeError: Both a name and a path are given.

    Note:
        PayloadPickleError is raised if a value cannot be encoded, and PayloadTooLargeError if the
        contents would be too large. Nothing was changed then. ObjectRemovedError is raised if the
        manager has shut down. OutcomeUnknownError is raised if the session ended before the reply,
        and a change may or may not have taken effect.

        Reading costs 2 requests in 1 round trip. Changing costs 1 request if this process made the
        last change, otherwise 3. It costs 3 more each time another process was faster. If
        interrupted, a change may or may not have taken effect.

        Source: ``multiprocessing.managers.DictProxy``.
    """

    __module__ = "distsync.multiprocessing.managers"

    _typeid = "dict"
    __hash__ = None  # type: ignore[assignment]

    __contains__ = element_method(dict.__contains__)
    __eq__ = read_method(dict.__eq__)
    __getitem__ = element_method(dict.__getitem__)
    __len__ = element_method(dict.__len__)
    __ne__ = read_method(dict.__ne__)
    __or__ = read_method(dict.__or__)
    __ror__ = read_method(dict.__ror__)
    get = element_method(dict.get)

    __delitem__ = write_method(dict.__delitem__)
    __setitem__ = write_method(dict.__setitem__)
    clear = clear_method(dict, dict.clear)
    pop = write_method(dict.pop)
    popitem = write_method(dict.popitem)
    setdefault = write_method(dict.setdefault)

    @staticmethod
    def fromkeys(iterable: Iterable[Any], value: Any = None, /) -> dict[Any, Any]:
        """Return a plain dict with these keys, like ``multiprocessing.managers.DictProxy.fromkeys``.

        Args:
            iterable: The keys.
            value: The value of each key.

        Returns:
            A dict that is not shared. The shared dict is neither read nor changed.

        Note:
            Costs no request.
        """
        return dict.fromkeys(iterable, value)

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Set several items at once, like ``dict.update``.

        Args:
            other: A mapping, an iterable of pairs, or another DictProxy.
            **more: Further items.

        Note:
            Costs 1 request if this process made the last change, otherwise 3.
        """
        new = dict(unwrap(other), **more)
        self._apply(lambda items: items.update(new))

    def __ior__(self, other: Any) -> DictProxy:  # type: ignore[misc]
        self.update(other)
        return self

    def copy(self) -> dict[Any, Any]:
        """Return a dict with the current items.

        Returns:
            The dict.

        Note:
            Costs 2 requests in 1 round trip.
        """
        found: dict[Any, Any] = self._getvalue()
        return found

    def keys(self) -> list[Any]:
        """Return the keys, in insertion order.

        Returns:
            A list.

        Note:
            Costs 2 requests in 1 round trip.
        """
        return list(self._read_container())

    def values(self) -> list[Any]:
        """Return the values, in the order of their keys.

        Returns:
            A list.

        Note:
            Costs 2 requests in 1 round trip.
        """
        return list(self._getvalue().values())

    def items(self) -> list[tuple[Any, Any]]:
        """Return the pairs of keys and values, in the order of the keys.

        Returns:
            A list.

        Note:
            Costs 2 requests in 1 round trip.
        """
        return list(self._getvalue().items())

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the keys. RuntimeError is raised if their number changes."""
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
    """A shared list, like ``multiprocessing.managers.ListProxy``.

    All items together may be 1,000,000 bytes long. An item that this process cannot unpickle stops
    only the calls that return or compare it.

    Args:
        name: Name of the list, shared by all processes that use it. Without a name, a list assigned
            at module or class level is named after its variable; any other list gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the list's znode, instead of a name.

    Raises:
        TypeError: Both a name and a path are given.

    Note:
        Errors, costs and interrupts are those of DictProxy.

        Source: ``multiprocessing.managers.ListProxy``.
    """

    __module__ = "distsync.multiprocessing.managers"

    _typeid = "list"
    __hash__ = None  # type: ignore[assignment]

    __add__ = read_method(list.__add__)
    __contains__ = element_method(list.__contains__)
    __eq__ = read_method(list.__eq__)
    __ge__ = read_method(list.__ge__)
    __getitem__ = element_method(list.__getitem__)
    __gt__ = read_method(list.__gt__)
    __le__ = read_method(list.__le__)
    __len__ = element_method(list.__len__)
    __lt__ = read_method(list.__lt__)
    __mul__ = read_method(list.__mul__)
    __ne__ = read_method(list.__ne__)
    __reversed__ = read_method(list.__reversed__)
    __rmul__ = read_method(list.__rmul__)
    copy = read_method(list.copy)
    count = element_method(list.count)
    index = element_method(list.index)

    __delitem__ = write_method(list.__delitem__)
    __iadd__ = write_method(list.__iadd__, returns_self=True)
    __imul__ = write_method(list.__imul__, returns_self=True)
    __setitem__ = write_method(list.__setitem__)
    append = write_method(list.append)
    clear = clear_method(list, list.clear)
    extend = write_method(list.extend)
    insert = write_method(list.insert)
    pop = write_method(list.pop)
    remove = write_method(list.remove)
    reverse = write_method(list.reverse)
    sort = write_method(list.sort, call=_sort)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the items. Each is read when it is reached."""
        for place, found in enumerate(self._snapshots()):
            if place >= len(found):
                return
            yield _decoded(found[place])


class ArrayProxy(Shared):
    """A shared ``array.array``, like ``multiprocessing.managers.ArrayProxy``.

    For ctypes arrays, use ``distsync.multiprocessing.Array``. The elements together may be
    1,000,000 bytes long.

    Args:
        name: Name of the array, shared by all processes that use it. Without a name, an array
            assigned at module or class level is named after its variable; any other array gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the array's znode, instead of a name.

    Raises:
        TypeError: Both a name and a path are given.

    Note:
        Errors, costs and interrupts are those of DictProxy.

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
    """A shared value of any type that pickles, like ``multiprocessing.managers.ValueProxy``.

    The type code is ignored. The value may be 1,000,000 bytes long.

    Args:
        name: Name of the value, shared by all processes that use it. Without a name, a value
            assigned at module or class level is named after its variable; any other value gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the value's znode, instead of a name.

    Raises:
        TypeError: Both a name and a path are given.

    Note:
        Errors, costs and interrupts are those of DictProxy.

        Source: ``multiprocessing.managers.ValueProxy``.
    """

    __module__ = "distsync.multiprocessing.managers"

    _typeid = "Value"

    def get(self) -> Any:
        """Return the value.

        Returns:
            A copy.

        Note:
            Costs 2 requests in 1 round trip.
        """
        return self._getvalue()[0]

    def set(self, value: Any) -> None:
        """Set the value.

        Args:
            value: The new value.

        Note:
            Costs 1 request if this process made the last change, otherwise 3.
        """
        self._replace([value])

    value = property(get, set)

    def __str__(self) -> str:
        return f"Value({self.get()!r})"


class NamespaceProxy:
    """A shared object with attributes of any type that pickles, like ``managers.Namespace``.

    Attributes that begin with an underscore are not shared, as in multiprocessing. All attributes
    together may be 1,000,000 bytes long.

    Args:
        shared: The dict that contains the attributes.

    Note:
        Errors, costs and interrupts are those of DictProxy.

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
