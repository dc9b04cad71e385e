"""Check that gevent has patched either all that distsync waits in, or nothing.

gevent turns threads into greenlets. A real thread that waits in a queue of greenlets ends, and a
greenlet that waits in a queue of threads blocks all others. In both cases the session is not kept
alive. gevent itself is not imported here.
"""

from __future__ import annotations

import queue
import sys
from queue import SimpleQueue

from distsync.errors import UsageError

#: Modules in which distsync waits.
WAITED_IN = ("threading", "queue", "select")


def check_patched() -> None:
    """Raise UsageError if gevent has patched only some of the modules, or patched them too late."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is None or not any(map(monkey.is_module_patched, WAITED_IN)):
        return
    unpatched = [name for name in WAITED_IN if not monkey.is_module_patched(name)]
    if unpatched:
        reason = f"gevent has patched some modules, but not {', '.join(unpatched)}"
    elif SimpleQueue is not queue.SimpleQueue:
        reason = "gevent patched the standard library after distsync was imported"
    else:
        return
    raise UsageError(f"{reason}, which would let the session expire: call monkey.patch_all() before all other imports")
