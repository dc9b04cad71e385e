"""Views of ctypes objects whose bytes all processes share.

Rules for this file: no znode; ctypes says what the bytes mean. What is read is a copy, so every way into an object (a
field, an element, an element's field) is a view: it reads the whole object anew, and writes by a change of the whole.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from distsync._pickle import at_home
from distsync._protocols.state.atomic_bytes import CellCore
from distsync.errors import MismatchError, PayloadTooLargeError
from distsync.multiprocessing._atomic_bytes import Cell

if TYPE_CHECKING:
    from distsync._client.client import Client

#: What one object may take (bytes): a request of 1,000,000 with two paths in it, as all that distsync sends.
LIMIT_BYTES = 990_000

COMPOSITE = (ctypes.Structure, ctypes.Union, ctypes.Array)


@at_home
class CtypesBytes(Cell):
    """The bytes of an object, and its ctypes type: ``element``, or an array of ``length`` of it."""

    def __init__(
        self,
        element: Any,
        length: int | None,
        initial: bytes | None = None,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
    ) -> None:
        self.element, self.length = element, length
        self.type = element if length is None else element * length
        if ctypes.sizeof(self.type) > LIMIT_BYTES:
            raise PayloadTooLargeError(f"a shared {self.type.__name__}", ctypes.sizeof(self.type), LIMIT_BYTES)
        super().__init__(initial or bytes(ctypes.sizeof(self.type)), name, client, path)

    def _arguments(self) -> tuple[Any, ...]:
        return self.element, self.length, self._initial if any(self._initial or b"") else None

    def _make_core(self, path: str) -> CellCore:
        return super()._make_core(f"{path}/data")  # beside the lock

    def copied(self) -> Any:
        """A copy of the object."""
        return self._object(self.read().data)

    def _object(self, data: bytes) -> Any:
        if len(data) != ctypes.sizeof(self.type):
            raise MismatchError("the size in bytes", self.path, len(data), ctypes.sizeof(self.type))
        return self.type.from_buffer_copy(data)

    def put(self, data: bytes) -> None:
        """The object is this one. Cost: 1 request; 2 more the first time, to see that the name is of such an object."""
        if self.core.size != len(data):
            self.copied()
        self.set(data)

    def edit(self, edit: Callable[[Any], object]) -> None:
        """The object is what ``edit`` makes of it."""

        def change(data: bytes) -> bytes:
            found = self._object(data)
            edit(found)
            return bytes(found)

        self.change(change)


class View:
    """The object, or a part of it: ``steps``, fields and indices, lead there from the object."""

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
        """What is at ``step`` of this part: a value, or a view where it has parts itself."""
        found = _step_of(self._part(self._cell.copied()), step)
        return view_of(self._cell, (*self._steps, step), type(found)) if isinstance(found, COMPOSITE) else found

    def _write(self, step: Any, value: Any) -> None:
        value = value._copy() if isinstance(value, View) else value

        def edit(whole: Any) -> None:
            part = self._part(whole)
            setattr(part, step, value) if isinstance(step, str) else part.__setitem__(step, value)

        self._cell.edit(edit)

    def _copy(self) -> Any:
        """A ctypes object with what is here now."""
        return self._part(self._cell.copied())

    def __reduce__(self) -> tuple[Any, ...]:
        if self._steps:
            return ctypes_part, (self._cell, self._steps)
        return ctypes_object, (self._cell,)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._type.__name__} of {self._cell.name!r}>"


def _check_index(index: Any) -> None:
    if isinstance(index, str):  # a step that is a str is a field
        raise TypeError("indices must be integers")


def _step_of(part: Any, step: Any) -> Any:
    return getattr(part, step) if isinstance(step, str) else part[step]


class RawNumber(View):
    """A number, or a character, that all who know its name share."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        """The number. Cost: 2 requests, 1 round trip; to set it 1."""
        return self._read("value")

    @value.setter
    def value(self, value: Any) -> None:
        self._cell.put(bytes(self._type(value)))


class RawSequence(View):
    """An array that all who know its name share."""

    __slots__ = ()

    def __len__(self) -> int:
        length: int = self._type._length_
        return length

    def __getitem__(self, index: Any) -> Any:
        """An element, or a list of them. Cost: 2 requests, 1 round trip."""
        _check_index(index)
        if not isinstance(index, slice) or not issubclass(self._type._type_, COMPOSITE):
            return self._read(index)
        return [view_of(self._cell, (*self._steps, i), self._type._type_) for i in range(*index.indices(len(self)))]

    def __setitem__(self, index: Any, value: Any) -> None:
        """Other elements stay as they are. Cost: 1 request if this process changed the array last, else 3."""
        _check_index(index)
        self._write(index, value)

    def __iter__(self) -> Iterator[Any]:
        """All elements, as they are at one moment. Cost: 2 requests, 1 round trip."""
        return iter(self[:])


class RawText(RawSequence):
    """An array of characters that all who know its name share."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        """The text up to its first null. Cost: as that of elements."""
        return self._read("value")

    @value.setter
    def value(self, value: Any) -> None:
        self._write("value", value)


class RawBytes(RawText):
    """An array of bytes that all who know its name share."""

    __slots__ = ()

    @property
    def raw(self) -> Any:
        """All bytes. Cost: as that of elements."""
        return self._read("raw")

    @raw.setter
    def raw(self, value: Any) -> None:
        self._write("raw", value)


class RawRecord(View):
    """A Structure or Union that all who know its name share; its fields are attributes."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        """A field. Cost: 2 requests, 1 round trip."""
        if name not in fields_of(self._type):
            raise AttributeError(f"{self._type.__name__!r} object has no attribute {name!r}")
        return self._read(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Other fields stay as they are. Cost: 1 request if this process changed the object last, else 3."""
        if name not in fields_of(self._type):
            raise AttributeError(f"{self._type.__name__!r} object has no attribute {name!r}")
        self._write(name, value)


def fields_of(kind: Any) -> list[str]:
    return [field[0] for each in reversed(kind.__mro__) for field in each.__dict__.get("_fields_", ())]


def view_of(cell: CtypesBytes, steps: tuple[Any, ...], kind: Any) -> Any:
    if issubclass(kind, (ctypes.Structure, ctypes.Union)):
        return RawRecord(cell, steps, kind)
    if not issubclass(kind, ctypes.Array):
        return RawNumber(cell, steps, kind)
    known = {ctypes.c_char: RawBytes, ctypes.c_wchar: RawText}
    return known.get(kind._type_, RawSequence)(cell, steps, kind)


@at_home
def ctypes_object(cell: CtypesBytes) -> Any:
    """Return the view of all of ``cell``."""
    return view_of(cell, (), cell.type)


@at_home
def ctypes_part(cell: CtypesBytes, steps: tuple[Any, ...]) -> Any:
    """Return the view of the part of ``cell`` that ``steps``, names of fields and indices, lead to."""
    kind = cell.type
    for step in steps:
        kind = (
            next(field[1] for field in all_fields(kind) if field[0] == step) if isinstance(step, str) else kind._type_
        )
    return view_of(cell, steps, kind)


def all_fields(kind: Any) -> list[Any]:
    return [field for each in kind.__mro__ for field in each.__dict__.get("_fields_", ())]
