"""gevent, which makes greenlets of threads: all of ours have to be greenlets, and to wait as such, or none.

Rules for this file: gevent is not imported; who uses it has.

A real thread in a queue of greenlets ends, and a greenlet in a queue of threads keeps all the others from running:
either way nobody sends what keeps the session alive.
"""

from __future__ import annotations

import queue
import sys
from queue import SimpleQueue

from distsync.errors import UsageError

#: What distsync waits in.
WAITED_IN = ("threading", "queue", "select")


def check_patched() -> None:
    """gevent has patched all that distsync waits in, before distsync was imported, or nothing of it.

    Raises: UsageError.
    """
    monkey = sys.modules.get("gevent.monkey")
    if monkey is None or not any(map(monkey.is_module_patched, WAITED_IN)):
        return
    unpatched = [name for name in WAITED_IN if not monkey.is_module_patched(name)]
    if unpatched:
        reason = f"gevent has patched some modules, and not {', '.join(unpatched)}"
    elif SimpleQueue is not queue.SimpleQueue:
        reason = "gevent has patched the standard library when distsync was imported already"
    else:
        return
    raise UsageError(f"{reason}: nobody would keep the session alive; call monkey.patch_all() before all other imports")
