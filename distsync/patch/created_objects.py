"""A list of the objects that a program creates, for ``distsync run --report``."""

from __future__ import annotations

import sys
from typing import NamedTuple

from distsync._client import lifecycle
from distsync._client.naming import inference
from distsync._client.naming.inference import CreationPlace
from distsync._objects.base import SharedObject, creation_listeners


class _Group(NamedTuple):
    """What the objects of a line of the list have in common. Each has a name, a path, or neither."""

    place: str
    kind: str
    name: str | None
    path: str | None


class CreatedObjects:
    """The objects of this process that were created since this list was.

    Objects that distsync creates inside of others are left out. The list keeps no object alive.
    """

    def __init__(self) -> None:
        self._groups: dict[_Group, list[CreationPlace]] = {}
        creation_listeners.append(self._add)

    def _add(self, obj: SharedObject) -> None:
        target = obj._naming_target or obj
        creation = obj._creation or inference.creation_place(target)
        if creation is None or (obj._explicit_path is not None and target is obj and _is_internal(obj)):
            return
        if obj._is_anonymous and obj._creation is None:
            obj._creation = creation  # is marked when the object is pickled or inherited
            lifecycle.register_before_fork(obj)
        path = obj._explicit_path
        name = None if path is not None or obj._is_anonymous else obj.name
        group = _Group(f"{creation.file}:{creation.line}", creation.kind, name, path)
        self._groups.setdefault(group, []).append(creation)

    def lines(self) -> list[str]:
        """Return a line for each object with a name or path, and for the others of each place."""
        return [line for group, creations in list(self._groups.items()) for line in _lines(group, creations)]


def _is_internal(obj: SharedObject) -> bool:
    """Return whether distsync's own code creates ``obj``, by a call to the class of it."""
    frame = sys._getframe(2)
    while inference.initialises(frame, obj) and frame.f_back is not None:
        frame = frame.f_back
    return inference.is_ours(frame.f_globals.get("__name__"))


def _lines(group: _Group, creations: list[CreationPlace]) -> list[str]:
    place, kind, name, path = group
    if name is not None:
        return [f"{place}: {kind} {name!r}, shared with all processes that use this name"]
    if path is not None:
        return [f"{place}: {kind} at path {path!r}, shared with all processes that use this path"]
    travelled = sum(creation.travelled for creation in creations)
    counts = {
        "private to this process": len(creations) - travelled,
        "shared with the processes that inherited or unpickled it": travelled,
    }
    return [
        f"{place}: {f'{count} ' if count > 1 else ''}{kind} without a name, {shared}"
        for shared, count in counts.items()
        if count
    ]
