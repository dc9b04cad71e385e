"""Config: settings shared by processes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from distsync._client import json_data
from distsync._objects.base import SharedObject
from distsync._objects.observable import OnChange, PredicateWaitable, ReportsChanges
from distsync._objects.validation import refuse_positional
from distsync._protocols.state.config import ConfigCore, ConfigSnapshot
from distsync._protocols.state.watch_cache import WatchCache
from distsync.errors import CorruptNodeError

if TYPE_CHECKING:
    from distsync._client.client import Client

_MISSING = object()

#: Types of immutable values, which are not copied.
_ATOMS = (str, int, float, bool, type(None))


class Config(ReportsChanges, PredicateWaitable, SharedObject, MutableMapping[str, Any]):
    """Settings shared by processes and hosts: a mapping of names to JSON values.

    Each change, of one setting or of many, is atomic. A process sees its own changes at once, and
    those of other processes soon. All settings together may take 1 MB at most.

    A value that is read is a copy. To change a list that is a value, set it again, or use
    ``edit(function)``.

    Args:
        name: Name of the configuration, shared by all processes that use it. Without a name, a
            configuration assigned at module or class level is named after its variable; any other
            configuration gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the configuration's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_change: Called with the settings before and after each change, two dicts, in a thread of
            distsync's own, one call after the other unless one takes more than 5 seconds; None calls
            nothing.

    Raises:
        TypeError: Both a name and a path are given.
        ConfigurationError: ``acl`` is not valid.

    Note:
        Reading costs no request if nothing has changed since the last read, and 1 request after a
        change. A change costs 1 request.

        Of two concurrent changes, one is tried again with the result of the other.

        If the connection is lost, reading waits for the next one.

        Znodes: ``<namespace>/config/<name>``, whose data is a JSON object with all settings.

        Source: ZooKeeper recipes, "Configuration"; ``collections.abc.MutableMapping``.

    Example:
        >>> config = Config(name="shop")
        >>> config.update(currency="EUR", retries=3)
        >>> config["retries"]
        3
    """

    __module__ = "distsync.recipes"
    _kind = "config"
    _has_versions = True

    def __init__(
        self,
        *_: NoReturn,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
        on_change: OnChange | None = None,
    ) -> None:
        refuse_positional(self, _)
        super().__init__(name, client, path, acl)
        self.on_change = on_change

    @property
    def _core(self) -> ConfigCore:
        return self._shared_state(partial(self._with_receipts, _core))

    @property
    def _watched(self) -> WatchCache[ConfigSnapshot]:
        return self._core.view

    # ---- reading

    def _values(self, sync: bool = False, timeout: float | None = None) -> dict[str, Any]:
        values: dict[str, Any] = self._seen(sync, timeout).values
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
        """Return True, also without settings."""
        return True

    __hash__ = SharedObject.__hash__
    __eq__ = SharedObject.__eq__

    def snapshot(self, *, sync: bool = False, timeout: float | None = None) -> dict[str, Any]:
        """Return all settings of one moment.

        Args:
            sync: Whether to read what a quorum of the ensemble knows: a server may lag behind.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            A copy of the settings.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.

        Note:
            Costs no request if nothing has changed since the last read, 1 request after a change,
            and 2 requests with ``sync``.
        """
        return copy.deepcopy(self._values(sync, timeout))

    # ---- changing

    def _change(self, change: Callable[[dict[str, Any]], dict[str, Any] | None], timeout: float | None = None) -> bool:
        return bool(self._ask(self._core.change(change), timeout))

    def __setitem__(self, key: str, value: Any) -> None:
        new = _checked({key: value})
        self._change(lambda values: {**values, **new})

    def __delitem__(self, key: str) -> None:
        def without(values: dict[str, Any]) -> dict[str, Any]:
            del values[key]
            return values

        self._change(without)

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Set several settings at once, like ``dict.update``.

        Nothing was changed if this raises an error other than OutcomeUnknownError and DeadlineError. A
        setting may be named ``timeout``, so limit the time of this call by `distsync.timeout`.

        Args:
            other: A mapping, or an iterable of pairs, of names and values.
            **more: Further settings.

        Raises:
            TypeError: The name of a setting is not a str.
            PayloadPickleError: A value is not JSON.
            PayloadTooLargeError: All settings together exceed 1 MB.
            OutcomeUnknownError: The session ended before the reply, and the change may or may not
                have been made.
            DeadlineError: No server answered within the client's default timeout, and the change
                may or may not be made. Subclass of TimeoutError.

        Note:
            Costs 1 request, and 1 more if this process has not read the settings since the last
            change.

            If interrupted, either all of these settings are set or none.
        """
        new = _checked(dict(other, **more))
        self._change(lambda values: {**values, **new})

    def replace(self, settings: Mapping[str, Any], *, timeout: float | None = None) -> None:
        """Replace all settings by others.

        Args:
            settings: The new settings.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Raises:
            TypeError: The name of a setting is not a str.
            PayloadPickleError: A value is not JSON.
            PayloadTooLargeError: All settings together exceed 1 MB.
            OutcomeUnknownError: The session ended before the reply, and the change may or may not
                have been made.
            DeadlineError: No server answered in time, and the change may or may not be made.
                Subclass of TimeoutError.

        Note:
            Costs 1 request, and 1 more if this process has not read the settings since the last
            change.

            If interrupted, either all settings are replaced or none.
        """
        new = _checked(dict(settings))
        self._change(lambda values: new, timeout)

    def clear(self, *, timeout: float | None = None) -> None:
        """Remove all settings.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Raises:
            OutcomeUnknownError: The session ended before the reply, and the change may or may not
                have been made.
            DeadlineError: No server answered in time, and the change may or may not be made.
                Subclass of TimeoutError.

        Note:
            Costs 1 request, and 1 more if this process has not read the settings since the last
            change.
        """
        self.replace({}, timeout=timeout)

    def pop(self, key: str, default: Any = _MISSING, *, timeout: float | None = None) -> Any:
        """Remove a setting and return its value, like ``dict.pop``.

        Args:
            key: Name of the setting.
            default: Returned if the setting does not exist; without it, KeyError is raised.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The last value of the setting, or ``default``.

        Raises:
            KeyError: The setting does not exist, and no ``default`` is given.
            OutcomeUnknownError: The session ended before the reply, and the change may or may not
                have been made.
            DeadlineError: No server answered in time, and the change may or may not be made.
                Subclass of TimeoutError.

        Note:
            Costs 1 request, and 1 more if this process has not read the settings since the last
            change. If the setting does not exist, it costs 2, and 1 more if this process has not
            read the settings.
        """
        popped: list[Any] = []

        def without(values: dict[str, Any]) -> dict[str, Any] | None:
            popped[:] = [values.pop(key)] if key in values else []
            return values if popped else None

        if self._change(without, timeout):
            return popped[0]
        if default is _MISSING:
            raise KeyError(key)
        return default

    def setdefault(self, key: str, default: Any = None, *, timeout: float | None = None) -> Any:
        """Set a setting unless it exists, and return its value, like ``dict.setdefault``.

        All concurrent callers get the same value.

        Args:
            key: Name of the setting.
            default: Value of the setting if it does not exist.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The value of the setting.

        Raises:
            TypeError: The name of a setting is not a str.
            PayloadPickleError: A value is not JSON.
            PayloadTooLargeError: All settings together exceed 1 MB.
            OutcomeUnknownError: The session ended before the reply, and the change may or may not
                have been made.
            DeadlineError: No server answered in time, and the change may or may not be made.
                Subclass of TimeoutError.

        Note:
            Costs no request if the setting exists and nothing has changed since the last read. If
            it does not exist, it costs as many as `update`.
        """
        new = _checked({key: default})
        with self._limited(timeout):
            if key in (values := self._values()):
                return copy.deepcopy(values[key])
            return copy.deepcopy(self._keep(key, new))

    def _keep(self, key: str, new: dict[str, Any]) -> Any:
        """Return the value of a setting, which is set as in ``new`` if it does not exist."""
        kept: list[Any] = [new[key]]

        def keep(values: dict[str, Any]) -> dict[str, Any] | None:
            kept[0] = values.get(key, new[key])
            return None if key in values else {**values, **new}

        self._change(keep)
        return kept[0]

    def compare_and_set(self, key: str, expected: Any, value: Any, *, timeout: float | None = None) -> bool:
        """Set a setting if it has the expected value.

        Args:
            key: Name of the setting.
            expected: The value that is expected; ``...`` expects that the setting does not exist.
            value: The new value.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            True if the setting was set. False if it had another value, and nothing was changed.

        Raises:
            TypeError: The name of a setting is not a str.
            PayloadPickleError: A value is not JSON.
            PayloadTooLargeError: All settings together exceed 1 MB.
            OutcomeUnknownError: The session ended before the reply, and the change may or may not
                have been made.
            DeadlineError: No server answered in time, and the change may or may not be made.
                Subclass of TimeoutError.

        Note:
            Costs 1 request, and 1 more if this process has not read the settings since the last
            change. If it returns False, it costs 2, and 1 more if this process has not read the
            settings.

            If interrupted, the setting may or may not have been set.
        """
        new = _checked({key: value})
        old = {} if expected is ... else _checked({key: expected})

        def if_expected(values: dict[str, Any]) -> dict[str, Any] | None:
            same = {each: values[each] for each in (key,) if each in values} == old
            return {**values, **new} if same else None

        return self._change(if_expected, timeout)

    def edit(self, function: Callable[[dict[str, Any]], Any], *, timeout: float | None = None) -> dict[str, Any]:
        """Change the settings with a function, in one atomic change.

        If ``function`` raises an error, this raises it too, and nothing is changed.

        Args:
            function: Called with a dict of all settings, which it changes. It may be called several
                times, if other processes change settings at the same time. Its result is ignored.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The settings after the change.

        Raises:
            TypeError: The name of a setting is not a str.
            PayloadPickleError: A value is not JSON.
            PayloadTooLargeError: All settings together exceed 1 MB.
            OutcomeUnknownError: The session ended before the reply, and the change may or may not
                have been made.
            DeadlineError: No server answered in time, and the change may or may not be made.
                Subclass of TimeoutError.

        Note:
            Costs 1 request, and 1 more if this process has not read the settings since the last
            change.

            If interrupted, either all changes are made or none.
        """
        made: dict[str, Any] = {}

        def edited(values: dict[str, Any]) -> dict[str, Any]:
            nonlocal made
            made = copy.deepcopy(values)
            function(made)
            made = _checked(made)
            return made

        self._change(edited, timeout)
        return copy.deepcopy(made)

    # ---- listening

    def _report_change(self, before: ConfigSnapshot, now: ConfigSnapshot) -> None:
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
    """Return ``values`` as they read back from JSON, or raise TypeError or PayloadError."""
    for key, value in values.items():
        if not isinstance(key, str):
            raise TypeError(f"the name of a setting must be a str, not {type(key).__name__}")
        values[key] = json_data.decode(json_data.encode(value, f"the setting {key!r}"), key)
    return values
