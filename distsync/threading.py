"""Drop-in replacement for ``threading``: the same names and signatures, across processes and hosts.

Results and exceptions are the same too. Names that are not replaced here (Thread, Timer, local,
...) are those of the standard library. SharedLock is an RLock that the standard library does not
have.
"""

from __future__ import annotations

import sys as _sys
import threading as _stdlib
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING, Any

from distsync._import_gate import importing as _importing
from distsync._objects.barriers import Barrier as Barrier
from distsync._objects.conditions import Condition as Condition
from distsync._objects.events import Event as Event
from distsync._objects.locks import Lock as Lock
from distsync._objects.locks import RLock as RLock
from distsync._objects.semaphores import BoundedSemaphore as BoundedSemaphore
from distsync._objects.semaphores import Semaphore as Semaphore
from distsync._objects.validation import TIMEOUT_MAX as TIMEOUT_MAX
from distsync.errors import BrokenBarrierError as BrokenBarrierError

if TYPE_CHECKING:  # for type checkers; see __getattr__
    from threading import ExceptHookArgs as ExceptHookArgs
    from threading import Thread as Thread
    from threading import ThreadError as ThreadError
    from threading import Timer as Timer
    from threading import active_count as active_count
    from threading import current_thread as current_thread
    from threading import enumerate as enumerate
    from threading import excepthook as excepthook
    from threading import get_ident as get_ident
    from threading import get_native_id as get_native_id
    from threading import getprofile as getprofile
    from threading import gettrace as gettrace
    from threading import local as local
    from threading import main_thread as main_thread
    from threading import setprofile as setprofile
    from threading import settrace as settrace
    from threading import stack_size as stack_size

    from distsync._objects.election import Election as Election
    from distsync._objects.shared_lock import SharedLock as SharedLock

_REPLACED = ["Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier", "BrokenBarrierError"]
#: Names that the standard library does not have, and the modules from which they are imported at their first use.
#: ``import *`` does not import them.
_ADDED = {"Election": "election", "SharedLock": "shared_lock"}
__all__ = [*dict.fromkeys([*_stdlib.__all__, *_REPLACED])]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Return an added name, or any other name of the standard library's ``threading``."""
    if name in _ADDED:
        with _importing():
            return getattr(_import_module(f"distsync._objects.{_ADDED[name]}"), name)
    try:
        return getattr(_stdlib, name)
    except AttributeError:
        raise AttributeError(f"module 'distsync.threading' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_ADDED, *dir(_stdlib)})


class _Face(_ModuleType):
    """A module that sets names that are not its own in ``threading``, for example excepthook."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in globals() or name in _ADDED or name.startswith("__"):
            super().__setattr__(name, value)
        else:
            setattr(_stdlib, name, value)

    def __delattr__(self, name: str) -> None:
        if name in globals() or name.startswith("__"):
            super().__delattr__(name)
        else:
            delattr(_stdlib, name)


_sys.modules[__name__].__class__ = _Face
