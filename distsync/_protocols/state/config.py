"""Config: all settings of a name in one znode, so that any change of several settings is one write.

Source: recipes.txt, "Out of the Box Applications: ... Configuration ...".

A change reads the settings, computes new ones, and writes them if the znode's version is unchanged.
The caller supplies the encoding.

Znodes:
  ``<path>``  data: JSON object of all settings
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from distsync._protocols.receipts import Abandoned, Operation, Receipts
from distsync._protocols.retries import call_user_function, ensure, parent_of, read
from distsync._protocols.state.watch_cache import WatchCache
from distsync._protocols.steps import Call, Create, Exists, GetData, SetData, Watch
from distsync.errors import BadVersionError, NodeExistsError, NoNodeError

#: Version of a znode that does not exist.
ABSENT = -1


class ConfigSnapshot(NamedTuple):
    """The settings at one version of the znode, identified by czxid and version. ``values`` must not
    be modified.
    """

    values: dict[str, Any]
    czxid: int
    version: int


NONE = ConfigSnapshot({}, 0, ABSENT)

Change = Callable[[dict[str, Any]], "dict[str, Any] | None"]
"""A function from the current settings to the new ones; None for no change. It may be called several
times, without the mutex.
"""


class ConfigCore:
    """In-process state of a configuration, shared by all its threads."""

    def __init__(
        self,
        path: str,
        receipts: Receipts,
        encode: Callable[[dict[str, Any]], bytes],
        decode: Callable[[bytes], dict[str, Any]],
    ) -> None:
        self.path = path
        self.receipts = receipts
        self.encode = encode
        self.decode = decode
        self.view: WatchCache[ConfigSnapshot] = WatchCache(path, self._read_state)

    @property
    def idle(self) -> bool:
        """Whether there is no listener."""
        return self.view.idle

    async def _read_state(self, watch: Watch) -> ConfigSnapshot:
        while True:
            try:
                node = await read(GetData(self.path, watch))
                return ConfigSnapshot(self.decode(node.data), node.stat.czxid, node.stat.version)
            except NoNodeError:
                if await read(Exists(self.path, watch)) is None:
                    return NONE

    async def change(self, change: Change) -> bool:
        """Replace the settings with the result of ``change``. Return False if it makes no change.
        Raises its exceptions.

        A refusal or exception counts only if based on current settings. An older copy can only lead
        to a write, which fails.
        """
        sync = False
        while True:
            basis = await self.receipts.basis()
            current = await self.view.get(sync)
            values, error = await Call(partial(call_user_function, change, dict(current.values)))
            if values is None:
                if not sync:
                    sync = True
                    continue
                try:
                    if error is not None:
                        raise error
                finally:
                    del error  # its traceback refers to this frame
                return False
            try:
                await self.receipts.commit(self._write(values, current.version), basis=basis)
                return True
            except (BadVersionError, NodeExistsError, Abandoned):
                continue
            except NoNodeError:
                await ensure(parent_of(self.path))
            finally:
                self.view.forget()

    def _write(self, values: dict[str, Any], version: int) -> Operation:
        data = self.encode(values)
        return Create(self.path, data) if version == ABSENT else SetData(self.path, data, version)
