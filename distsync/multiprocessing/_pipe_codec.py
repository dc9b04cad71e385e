"""Tasks and results of a pool without a name, as bytes in the pipes to its workers.

::

    task:    job | part | length                   | pickle of (function, args, kwds)
    result:  job | part | length | seconds | kind  | pickle of (success, value), or the reason of a refusal

The seconds are the duration of the task.

They are not signed: only this process and its children have the pipes.
"""

from __future__ import annotations

import struct
from multiprocessing.reduction import ForkingPickler
from typing import Any

from distsync._client.settings import Settings
from distsync.errors import ConfigurationError

TASK, RESULT = struct.Struct("<qqq"), struct.Struct("<qqqdB")

#: Kinds of results. DONE: a value or an exception. REFUSED: the worker cannot read the task. LEAVING: no result; the
#: worker exits, and has started no task that it has not finished.
DONE, REFUSED, LEAVING = range(3)


class PipeCodec:
    """Codec of calls and results between a process and its children.

    Objects of the standard library that only children may get, such as connections, pickle too.

    Args:
        settings: Settings of the client. Its codec is used if it is a custom one.

    Raises:
        ConfigurationError: The codec is JSON.
    """

    def __init__(self, settings: Settings) -> None:
        codec: Any = settings.codec
        if codec == "json":
            raise ConfigurationError("codec", "json", "a pool's functions travel by pickle, or by a codec of your own")
        is_pickle = codec == "pickle"
        self.dumps = ForkingPickler.dumps if is_pickle else codec.encode
        self.loads = ForkingPickler.loads if is_pickle else codec.decode
