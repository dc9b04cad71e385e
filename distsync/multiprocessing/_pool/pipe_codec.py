"""Tasks and results of a pool, as bytes in the pipes to its local workers.

::

    task:    job | part | length                   | pickle of (function, args, kwds)
    result:  job | part | length | seconds | kind  | pickle of (success, value), or the reason of a refusal

The seconds are the duration of the task.

They are not signed: only this process and its children have the pipes. The tasks of a pool with a
name may go to workers elsewhere too. So they are encoded by `PoolCodec`, and what replaces the pickle is::

    task:    length of the place | whether the program is the caller's | place | payload
    result:  payload
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

from distsync._client.settings import Settings
from distsync.multiprocessing._pool.pool_codec import check_codec_of_pool

_SHARED_TASK = struct.Struct("<H?")
TASK, RESULT = struct.Struct("<qqq"), struct.Struct("<qqqdB")

#: Kinds of results. DONE: a value or an exception. REFUSED: the worker cannot read the task. LEAVING: no result; the
#: worker exits, and has started no task that it has not finished.
DONE, REFUSED, LEAVING = range(3)


class PipeCodec:
    """Codec of calls and results between a process and its children.

    Objects of the standard library that only children may get, such as connections, pickle too.

    Args:
        settings: Settings of the client. Its codec is used unless it is pickle.

    Raises:
        ConfigurationError: The codec is JSON.
    """

    def __init__(self, settings: Settings) -> None:
        check_codec_of_pool(settings)
        items = settings.payload_codec().items
        is_pickle = settings.codec == "pickle"
        self.dumps: Callable[[Any], Any] = ForkingPickler.dumps if is_pickle else items.encode
        self.loads: Callable[[Any], Any] = ForkingPickler.loads if is_pickle else items.decode


def shared_task_prefix(place: str, own: bool) -> bytes:
    """Return what precedes the payload of a task of a pool with a name.

    Args:
        place: Path of the caller, with job and part, for which the task is signed.
        own: Whether the program is that of the process that sends this to its worker.

    Returns:
        The prefix.
    """
    encoded = place.encode()
    return _SHARED_TASK.pack(len(encoded), own) + encoded


def split_shared_task(data: bytes) -> tuple[str, bool, bytes]:
    """Return what a worker of a pool with a name gets.

    Args:
        data: The prefix and the payload.

    Returns:
        The arguments of `shared_task_prefix`, and the payload.
    """
    length, own = _SHARED_TASK.unpack_from(data)
    end = _SHARED_TASK.size + length
    return data[_SHARED_TASK.size : end].decode(), own, data[end:]
