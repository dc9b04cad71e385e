"""A timeout for all calls of a block, for those that have no parameter for it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from distsync._client.deadlines import limit_calls
from distsync._objects.validation import validate_timeout


def timeout(seconds: float | None) -> AbstractContextManager[None]:
    """Limit the time that all calls of a ``with`` block together wait for replies of the server.

    It is for operators, properties, iteration and calls without a parameter ``timeout``. The client's
    default does not apply in the block. Of nested blocks and the ``timeout`` of a call, the one that
    ends first counts.

    It does not limit how long a call waits for another process, as ``Lock.acquire``, ``Queue.get``
    and ``Queue.join`` do, nor the release of a lock or semaphore, which waits for at most the session
    timeout.

    The limit is that of the current thread, or of the current asyncio task and those that it creates in
    the block. Each context can be entered once.

    Args:
        seconds: Seconds from the start of the block; 0 gives the whole block 2 seconds, like a call
            that does not wait. None adds no limit, and neither does -1.

    Returns:
        The context manager. A call whose time has passed raises DeadlineError. If it is a write, it may
        still be executed, unless the error's ``sent`` is False.

    Raises:
        TypeError: ``seconds`` is not a number.
        ValueError: ``seconds`` is negative or NaN.
        OverflowError: ``seconds`` exceeds ``threading.TIMEOUT_MAX``.

    Note:
        Costs no request.

    Example:
        >>> visits = distsync.Counter(name="visits")
        >>> with distsync.timeout(5):
        ...     visits += 1
    """
    return limit_calls(validate_timeout(seconds, "call"))
