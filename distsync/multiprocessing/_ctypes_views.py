"""Views of ctypes objects whose bytes are shared by processes.

ctypes defines the meaning of the bytes. Every part of an object (a field, an element, a field of an
element) is a view. A view reads the whole object and returns a copy of its part. It writes by
changing the whole object.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Coroutine, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from distsync._objects.base import ParametrizedObject
from distsync._objects.validation import validate_on_mismatch
from distsync._pickle import stable_pickle_name
from distsync._protocols.state.atomic_bytes import SIZE, CellCore, SizedCellCore
from distsync.errors import ConfigurationError, MismatchError, PayloadTooLargeError
from distsync.multiprocessing._atomic_bytes import Cell

if TYPE_CHECKING:
    from distsync._client.client import Client

#: Maximum size of an object in bytes: a request of 1,000,000 bytes, less two paths.
LIMIT_BYTES = 990_000

COMPOSITE = (ctypes.Structure, ctypes.Union, ctypes.Array)


@stable_pickle_name
class CtypesBytes(ParametrizedObject, Cell):
    """The bytes of a ctypes object.

    Args:
        element: The ctypes type of the object, or of the elements of an array.
        length: Number of elements of an array; None if the object is no array.
        initial: Initial bytes; None means zeros.
        name: Name of the object, shared by all processes that use it. Without a name, an object
            assigned at module or class level is named after its variable; any other object gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the object's znode, instead of a name.
        on_mismatch: What the first use does while other processes use another size: ``"error"``
            raises MismatchError, and ``"wait"`` waits until they have ended.

    Raises:
        TypeError: Both a name and a path are given.
        PayloadTooLargeError: The object is larger than 990,000 bytes.
        ConfigurationError: ``on_mismatch`` is not valid.
    """

    def __init__(
        self,
        element: Any,
        length: int | None,
        initial: bytes | None = None,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        on_mismatch: str = "error",
    ) -> None:
        if on_mismatch == "adopt":
            raise ConfigurationError("on_mismatch", on_mismatch, "a ctypes object cannot have another size")
        self._on_mismatch = validate_on_mismatch(on_mismatch)
        self.element, self.length = element, length
        self.type = element if length is None else element * length
        if ctypes.sizeof(self.type) > LIMIT_BYTES:
            raise PayloadTooLargeError(f"a shared {self.type.__name__}", ctypes.sizeof(self.type), LIMIT_BYTES)
        self._parameters = {SIZE: ctypes.sizeof(self.type)}
        Cell.__init__(self, initial or bytes(ctypes.sizeof(self.type)), name, client, path)

    def _arguments(self) -> tuple[Any, ...]:
        return self.element, self.length, self._initial if any(self._initial or b"") else None

    @property
    def core(self) -> CellCore:
        """State of the object that all threads of this process share."""
        core: CellCore = self._agreed_state(self._make_core)
        return core

    def _make_core(self, path: str) -> CellCore:
        return SizedCellCore(f"{path}/data", self._initial or b"", self._receipts)  # beside the lock

    def _protocol(self, core: CellCore, protocol: Callable[[], Coroutine[Any, Any, Any]]) -> Coroutine[Any, Any, Any]:
        return self._using(core, protocol)

    def copied(self) -> Any:
        """Return a copy of the object.

        Returns:
            A ctypes object.
        """
        return self._object(self.read().data)

    def _object(self, data: bytes) -> Any:
        if len(data) != ctypes.sizeof(self.type):
            raise MismatchError("the size in bytes", self.path, len(data), ctypes.sizeof(self.type))
        return self.type.from_buffer_copy(data)

    def put(self, data: bytes) -> None:
        """Replace the object.

        Args:
            data: Bytes of the new object.

        Raises:
            MismatchError: The znode belongs to an object of another size.

        Note:
            Costs 1 request. The first call costs 2 more, to check the size of the object.
        """
        if self.core.size != len(data):
            self.copied()
        self.set(data)

    def edit(self, edit: Callable[[Any], object]) -> None:
        """Change the object atomically.

        Args:
            edit: Called with a copy of the object, which it changes. It may be called several
                times.

        Raises:
            MismatchError: The znode belongs to an object of another size.
        """

        def change(data: bytes) -> bytes:
            found = self._object(data)
            edit(found)
            return bytes(found)

        self.change(change)


class View:
    """A ctypes object, or a part of it.

    Args:
        cell: The bytes of the whole object.
        steps: The fields and indices that lead to the part.
        kind: The ctypes type of the part.
    """

    __slots__ = ("_cell", "_steps", "_type")
    _cell: CtypesBytes
    _steps: tuple[Any, ...]
    _type: Any

    def __init__(self, cell: CtypesBytes, steps: tuple[Any, ...], kind: Any) -> None:
        for name, value in (("_cell", cell), ("_steps", steps), ("_type", kind)):
            object.__setattr__(self, name, value)

    def _part(self, whole: Any) -> Any:
        for step in self._steps:
            whole = getattr(whole, step) if isinstance(step, str) else whole[step]
        return whole

    def _read(self, step: Any) -> Any:
        """Return the value at ``step`` of this part, or a view if it is composite."""
        found = _step_of(self._part(self._cell.copied()), step)
        return view_of(self._cell, (*self._steps, step), type(found)) if isinstance(found, COMPOSITE) else found

    def _write(self, step: Any, value: Any) -> None:
        value = value._copy() if isinstance(value, View) else value

        def edit(whole: Any) -> None:
            part = self._part(whole)
            setattr(part, step, value) if isinstance(step, str) else part.__setitem__(step, value)

        self._cell.edit(edit)

    def _copy(self) -> Any:
        """Return a ctypes object with a copy of this part."""
        return self._part(self._cell.copied())

    def __bytes__(self) -> bytes:
        """Return a copy of the bytes of this part, for 2 requests in 1 round trip."""
        return bytes(self._copy())

    def __buffer__(self, flags: int) -> NoReturn:
        """Refuse to share memory, which NumPy and other libraries would write to. Called by Python 3.12 and later."""
        raise TypeError(
            f"{self!r} has no memory here that can be shared, because it is on a server: read a copy with bytes(a), or"
            " of an array with numpy.array(a[:]), and write with a[:] = copy.tolist()"
        )

    def destroy(self, timeout: float | None = None) -> None:
        """Delete the object for all processes; the next access creates it with its initial value.

        Args:
            timeout: Maximum wait in seconds; None uses the client's default, and -1 waits forever.

        Raises:
            ValueError: This is a part of an object, or the given path contains other objects.
            DeadlineError: The object was not deleted in time. Subclass of TimeoutError.
            AccessDeniedError: An ACL denies the access.

        Note:
            Costs, losses and interrupts are those of ``Lock.destroy``.
        """
        if self._steps:
            raise ValueError(f"{self!r} is a part of an object: destroy the whole object")
        self._cell.destroy(timeout)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._steps:
            return ctypes_part, (self._cell, self._steps)
        return ctypes_object, (self._cell,)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._type.__name__} of {self._cell.name!r}>"


def numpy_copy(view: View, dtype: Any) -> Any:
    """Return a NumPy array with a copy of a ctypes object, for 2 requests in 1 round trip."""
    return import_module("numpy").array(view._copy(), dtype)


def _check_index(index: Any) -> None:
    if isinstance(index, str):  # a step that is a str is a field
        raise TypeError("indices must be integers")


def _step_of(part: Any, step: Any) -> Any:
    return getattr(part, step) if isinstance(step, str) else part[step]


class RawNumber(View):
    """A shared number or character."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        """The number.

        Note:
            Reading costs 2 requests in 1 round trip. Writing costs 1 request, and 2 more if this
            process has not read the number before.
        """
        return self._read("value")

    @value.setter
    def value(self, value: Any) -> None:
        self._cell.put(bytes(self._type(value)))


class RawSequence(View):
    """A shared array."""

    __slots__ = ()

    def __len__(self) -> int:
        length: int = self._type._length_
        return length

    def __getitem__(self, index: Any) -> Any:
        """Return an element or a list of elements, for 2 requests in 1 round trip."""
        _check_index(index)
        if not isinstance(index, slice) or not issubclass(self._type._type_, COMPOSITE):
            return self._read(index)
        return [view_of(self._cell, (*self._steps, i), self._type._type_) for i in range(*index.indices(len(self)))]

    def __setitem__(self, index: Any, value: Any) -> None:
        """Replace elements, for 1 request if this process made the last change, otherwise 3."""
        _check_index(index)
        self._write(index, value)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over a snapshot of all elements, for 2 requests in 1 round trip."""
        return iter(self[:])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return a NumPy array with a copy of all elements, for 2 requests in 1 round trip, if ``copy`` is True.

        NumPy would lose what is written to an array that it takes for the memory of this one.
        """
        if not copy:
            raise TypeError(
                f"NumPy cannot share the memory of {self!r}, which is on a server: read a copy with numpy.array(a[:]), "
                "and write with a[:] = copy.tolist()"
            )
        return numpy_copy(self, dtype)


class RawText(RawSequence):
    """A shared array of characters."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        """The text up to the first null character.

        Note:
            Costs are those of an element.
        """
        return self._read("value")

    @value.setter
    def value(self, value: Any) -> None:
        self._write("value", value)


class RawBytes(RawText):
    """A shared array of bytes."""

    __slots__ = ()

    @property
    def raw(self) -> Any:
        """All bytes.

        Note:
            Costs are those of an element.
        """
        return self._read("raw")

    @raw.setter
    def raw(self, value: Any) -> None:
        self._write("raw", value)


class RawRecord(View):
    """A shared Structure or Union, whose fields are attributes."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        """Return a field, for 2 requests in 1 round trip."""
        if name not in fields_of(self._type):
            raise AttributeError(f"{self._type.__name__!r} object has no attribute {name!r}")
        return self._read(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Replace a field, for 1 request if this process made the last change, otherwise 3."""
        if name not in fields_of(self._type):
            raise AttributeError(f"{self._type.__name__!r} object has no attribute {name!r}")
        self._write(name, value)


def fields_of(kind: Any) -> list[str]:
    """Return the names of the fields of a Structure or Union, including inherited ones.

    Args:
        kind: The ctypes type.

    Returns:
        The names, those of base classes first.
    """
    return [field[0] for each in reversed(kind.__mro__) for field in each.__dict__.get("_fields_", ())]


def view_of(cell: CtypesBytes, steps: tuple[Any, ...], kind: Any) -> Any:
    """Return the view of a part of an object.

    Args:
        cell: The bytes of the object.
        steps: The fields and indices that lead to the part.
        kind: The ctypes type of the part.

    Returns:
        The view.
    """
    if issubclass(kind, (ctypes.Structure, ctypes.Union)):
        return RawRecord(cell, steps, kind)
    if not issubclass(kind, ctypes.Array):
        return RawNumber(cell, steps, kind)
    known = {ctypes.c_char: RawBytes, ctypes.c_wchar: RawText}
    return known.get(kind._type_, RawSequence)(cell, steps, kind)


@stable_pickle_name
def ctypes_object(cell: CtypesBytes) -> Any:
    """Return the view of a whole object.

    Args:
        cell: The bytes of the object.

    Returns:
        The view.
    """
    return view_of(cell, (), cell.type)


@stable_pickle_name
def ctypes_part(cell: CtypesBytes, steps: tuple[Any, ...]) -> Any:
    """Return the view of a part of an object.

    Args:
        cell: The bytes of the object.
        steps: The fields and indices that lead to the part.

    Returns:
        The view.
    """
    kind = cell.type
    for step in steps:
        kind = (
            next(field[1] for field in all_fields(kind) if field[0] == step) if isinstance(step, str) else kind._type_
        )
    return view_of(cell, steps, kind)


def all_fields(kind: Any) -> list[Any]:
    """Return the definitions of the fields of a ctypes type, including inherited ones.

    Args:
        kind: The ctypes type.

    Returns:
        The entries of ``_fields_``; none if the type has no fields.
    """
    return [field for each in kind.__mro__ for field in each.__dict__.get("_fields_", ())]
