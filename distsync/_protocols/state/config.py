"""Config: all settings of a name in one znode, so that every change of any number of them is one write.

Source: recipes.txt, "Out of the Box Applications: ... Configuration ...".

Rules for this file: pure; how settings become bytes is passed in. The only way to change them is to read them, compute
what they shall be, and write that if nobody else has written meanwhile (the znode's version).

Picture: ``<path>``  data = JSON object, all settings
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from distsync._protocols.receipts import Operation, Receipts
from distsync._protocols.retries import attempted, ensure, parent_of, read
from distsync._protocols.state.watch_cache import WatchCache
from distsync._protocols.steps import Call, Create, Exists, GetData, SetData, Watch
from distsync.errors import BadVersionError, NodeExistsError, NoNodeError

#: Of a znode that is not there.
ABSENT = -1


class ConfigSnapshot(NamedTuple):
    """What the znode says, and when: no two states of it have the same czxid and version. Nobody changes ``values``."""

    values: dict[str, Any]
    czxid: int
    version: int


NONE = ConfigSnapshot({}, 0, ABSENT)

Change = Callable[[dict[str, Any]], "dict[str, Any] | None"]
"""From the settings there are to those there shall be; None: no change. May be called several times, with no
mutex held."""


class ConfigCore:
    """What the threads of one process know together about one configuration."""

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
        """Nobody asked to be told."""
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
        """The settings are what ``change`` makes of them. False: it wants none. Raises what it raises. It wants none,
        or raises, by what was there when it was asked: a copy that is older is only good for a write, which fails."""
        sync = False
        while True:
            current = await self.view.get(sync)
            values, error = await Call(partial(attempted, change, dict(current.values)))
            if values is None:
                if not sync:
                    sync = True
                    continue
                try:
                    if error is not None:
                        raise error
                finally:
                    del error  # its traceback leads here
                return False
            try:
                await self.receipts.commit(self._write(values, current.version))
                return True
            except (BadVersionError, NodeExistsError):
                continue
            except NoNodeError:
                await ensure(parent_of(self.path))
            finally:
                self.view.forget()

    def _write(self, values: dict[str, Any], version: int) -> Operation:
        data = self.encode(values)
        return Create(self.path, data) if version == ABSENT else SetData(self.path, data, version)
