"""Config.

Rules for this file: no znode; each method checks its arguments and runs one protocol.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._client import json_data
from distsync._objects.base import SharedObject
from distsync._objects.observable import PredicateWaitable
from distsync._protocols.state.config import ConfigCore, ConfigSnapshot
from distsync._protocols.state.watch_cache import Listener, WatchCache
from distsync.errors import CorruptNodeError

if TYPE_CHECKING:
    from distsync._client.client import Client

OnChange = Callable[[dict[str, Any], dict[str, Any]], Any]

_MISSING = object()

#: Nobody can change such a value for others.
_ATOMS = (str, int, float, bool, type(None))


class Config(PredicateWaitable, SharedObject, MutableMapping[str, Any]):
    """Settings that all processes share: names, and values that are JSON. Each change, of one or of many, is atomic.

    Who has written sees it at once, the others soon. ``on_change(before, now)`` is called with two dicts after each
    change, one after the other in a thread of distsync's own. All settings are in one znode, and together take 1 MB at
    most. What is got is a copy: to change a list that is a value, set it again, or use ``edit(function)``.
    On loss: of the connection: looking waits for the next one.
    Cost: looking: none while watched; 1 request after each change. To change: 1 request more, none to lookers but that.
    Fair: of two who change at once one does it again, with what the other has written.
    Source: recipes.txt, Configuration; ``collections.abc.MutableMapping``.

    Znodes: ``<namespace>/config/<name>``, a JSON object.

    >>> config = Config(name="shop")
    >>> config.update(currency="EUR", retries=3)
    >>> config["retries"]
    3
    """

    __module__ = "distsync.recipes"
    _kind = "config"

    def __init__(
        self,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
        on_change: OnChange | None = None,
    ) -> None:
        super().__init__(name, client, path, acl)
        self._on_change: OnChange | None = None
        self._listener: Listener | None = None
        self.on_change = on_change

    @property
    def _core(self) -> ConfigCore:
        return self._shared_state(partial(_core, receipts=self._receipts))

    @property
    def _watched(self) -> WatchCache[ConfigSnapshot]:
        return self._core.view

    # ---- looking

    def _values(self, sync: bool = False) -> dict[str, Any]:
        values: dict[str, Any] = self._seen(sync).values
        return values

    def __getitem__(self, key: str) -> Any:
        glance = self._glance
        kept = glance.look() if glance is not None else None
        value = (kept[0].values if kept else self._values())[key]
        return value if type(value) in _ATOMS else copy.deepcopy(value)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._values()))

    def __len__(self) -> int:
        return len(self._values())

    def __contains__(self, key: object) -> bool:
        return key in self._values()

    def __bool__(self) -> bool:
        """A configuration without settings is one."""
        return True

    __hash__ = SharedObject.__hash__
    __eq__ = SharedObject.__eq__

    def snapshot(self, *, sync: bool = False) -> dict[str, Any]:
        """All settings of one moment. ``sync``: as a quorum of the ensemble knows them, not a server that lags.

        Cost: none while watched; with ``sync`` 2 requests.
        """
        return copy.deepcopy(self._values(sync))

    # ---- changing

    def _change(self, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> bool:
        return bool(self._run(self._core.change(change)))

    def __setitem__(self, key: str, value: Any) -> None:
        new = _checked({key: value})
        self._change(lambda values: {**values, **new})

    def __delitem__(self, key: str) -> None:
        def without(values: dict[str, Any]) -> dict[str, Any]:
            del values[key]
            return values

        self._change(without)

    def update(self, other: Any = (), /, **more: Any) -> None:
        """All of these settings have these values, from one moment on; as ``dict.update``.

        Raises: TypeError for a key that is no str; PayloadPickleError for a value that is not JSON;
            PayloadTooLargeError if all settings take over 1 MB; OutcomeUnknownError when the session ended in this
            moment and nobody can know. Nothing was changed then, but for the last.
        On cancel: they are all set, or none.
        Cost: 1 request, 1 more where this process has not looked since the last change.
        """
        new = _checked(dict(other, **more))
        self._change(lambda values: {**values, **new})

    def replace(self, settings: Mapping[str, Any]) -> None:
        """These settings are all that there are.

        Raises, On cancel, Cost: as update.
        """
        new = _checked(dict(settings))
        self._change(lambda values: new)

    def clear(self) -> None:
        """There are no settings.

        Cost: as update.
        """
        self.replace({})

    def pop(self, key: str, default: Any = _MISSING) -> Any:
        """The setting is gone; as ``dict.pop``.

        Returns: its last value. Raises: KeyError.
        Cost: as update; 2 requests, 1 more where this process has not looked, if it was not there.
        """
        popped: list[Any] = []

        def without(values: dict[str, Any]) -> dict[str, Any] | None:
            popped[:] = [values.pop(key)] if key in values else []
            return values if popped else None

        if self._change(without):
            return popped[0]
        if default is _MISSING:
            raise KeyError(key)
        return default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The setting is there; ``default`` counts only if it was not. Of many who call this all get the same.

        Returns: its value. Cost: none if it is there and watched, else as update.
        """
        new = _checked({key: default})
        if key in (values := self._values()):
            return copy.deepcopy(values[key])
        kept: list[Any] = [new[key]]

        def keep(values: dict[str, Any]) -> dict[str, Any] | None:
            kept[0] = values.get(key, new[key])
            return None if key in values else {**values, **new}

        self._change(keep)
        return copy.deepcopy(kept[0])

    def compare_and_set(self, key: str, expected: Any, value: Any) -> bool:
        """The setting has the new value, if it had the expected one. Without ``expected`` (``...``) it was not there.

        Returns: True; False if it had another one, and nothing was changed.
        Raises, On cancel: as update.
        Cost: as update; 2 requests, 1 more where this process has not looked, if it is False.
        """
        new = _checked({key: value})
        old = {} if expected is ... else _checked({key: expected})

        def if_expected(values: dict[str, Any]) -> dict[str, Any] | None:
            same = {each: values[each] for each in (key,) if each in values} == old
            return {**values, **new} if same else None

        return self._change(if_expected)

    def edit(self, function: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """``function(settings)`` has changed a dict of the settings, and they are what it made of it; in one change.

        The function may be called several times, when others change something meanwhile.
        Returns: the settings after it. Raises: what the function raises; else as update.
        On cancel, Cost: as update.
        """
        made: dict[str, Any] = {}

        def edited(values: dict[str, Any]) -> dict[str, Any]:
            nonlocal made
            made = copy.deepcopy(values)
            function(made)
            made = _checked(made)
            return made

        self._change(edited)
        return copy.deepcopy(made)

    # ---- being told

    @property
    def on_change(self) -> OnChange | None:
        """What is called with the settings before and after each change from now on; None: nothing.

        Cost: setting it sends the first look; 1 request for each change.
        """
        return self._on_change

    @on_change.setter
    def on_change(self, callback: OnChange | None) -> None:
        self._on_change = callback
        if callback is not None and self._listener is None:
            self._listener = self._add_listener(self._notify_change)
        elif callback is None and self._listener is not None:
            self._remove_listener(self._listener)
            self._listener = None

    def _notify_change(self, before: ConfigSnapshot, now: ConfigSnapshot) -> None:
        callback = self._on_change
        if callback is not None and before.values != now.values:
            callback(copy.deepcopy(before.values), copy.deepcopy(now.values))

    def __repr__(self) -> str:
        return f"<distsync.recipes.Config object name={self.name!r} at {id(self):#x}>"


def _core(path: str, receipts: Any) -> ConfigCore:
    return ConfigCore(
        path, receipts, lambda values: json_data.encode(values, f"{path} with all settings"), _decoder(path)
    )


def _decoder(path: str) -> Callable[[bytes], dict[str, Any]]:
    def decode(data: bytes) -> dict[str, Any]:
        values = json_data.decode(data or b"{}", path)
        if not isinstance(values, dict):
            raise CorruptNodeError(path, data[:200])
        return values

    return decode


def _checked(values: dict[Any, Any]) -> dict[str, Any]:
    """The values as all will see them: as JSON keeps them."""
    for key, value in values.items():
        if not isinstance(key, str):
            raise TypeError(f"the name of a setting must be a str, not {type(key).__name__}")
        values[key] = json_data.decode(json_data.encode(value, f"the setting {key!r}"), key)
    return values
