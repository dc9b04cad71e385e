"""Locks, queues and the other tools of threading and queue, across processes and hosts.

A name is imported from its module at its first use, so that ``import distsync`` does not load kazoo
and starts nothing. `__init__.pyi` has the same names for type checkers and IDEs.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import Any

from distsync._import_gate import importing as _importing
from distsync._version import VERSION as _VERSION

__version__ = _VERSION

_MODULES = (
    *("asyncio", "errors", "futures", "joblib", "multiprocessing", "patch", "queue", "recipes", "testing"),
    "threading",
)
_HOMES = {
    "threading": "Lock RLock Condition Semaphore BoundedSemaphore Event Barrier BrokenBarrierError",
    "queue": "Queue LifoQueue PriorityQueue SimpleQueue Empty Full ShutDown",
    "recipes": "Candidate Config CountDownLatch Counter DoubleBarrier Election Entry FencingToken Gate Group"
    " IdGenerator Member Partitioner RateLimiter Registry SharedReader SharedWriter Value Versioned",
    "_objects.shared_lock": "SharedLock",
    "_objects.acquire_all": "acquire_all",
    "_objects.synchronized": "synchronized",
    "_objects.timeout": "timeout",
    "_objects.transaction": "Transaction Participant",
    "_objects.joinable_queue": "JoinableQueue Delivery",
    "_client.default_client": "connect default_client set_default close_default",
    "_client.client": "Client",
    "_client.ensemble_status": "Role Server",
    "_client.embedded_locator": "find_embedded_server",
    "_server.autostart.address_file": "ServerAddress",
    "_client.naming.inference": "PrivateObjectWarning",
    "_client.contender_info": "Contender",
    "errors": "DistsyncError UsageError NotHeldError NotOwnerError UpgradeError OverReleaseError"
    " ReleasedTooOftenError PayloadError"
    " PayloadTooLargeError PayloadPickleError NameInUseError NameTakenError MismatchError VoteRefusedError"
    " ConfigurationError ConfigurationWarning PatchError PrivateObjectError UnavailableError LockLostError"
    " UnreachableError ServerStartError SessionLostError OutcomeUnknownError ClientClosedError AccessDeniedError"
    " DeadlineError ObjectRemovedError StillUsedError"
    " TaskLostError TaskTimeoutError WorkerStartError SequenceExhaustedError"
    " PeerError PayloadRefusedError CorruptNodeError",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    """Import a public name, or a public module, at its first use."""
    if name not in _MODULES and name not in _HOME_OF:
        raise AttributeError(f"module 'distsync' has no attribute {name!r}")
    with _importing():
        if name in _MODULES:
            return _import_module(f"distsync.{name}")
        value = getattr(_import_module(f"distsync.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, *(name for name in globals() if name.startswith("__"))})
