"""Fast path of a cached lock: it is acquired and released without running a protocol.

This looks at the lease clock and runs one step of a LockCore under the client's mutex, as a driver
would between two awaits. All decisions are made in _protocols/locks/lock.py. In any unusual case a
method returns False and has changed nothing, and the caller runs the protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distsync._client.clocks import lease_clock
from distsync._client.default_client import current
from distsync._client.lifecycle import process
from distsync._objects.base import this_thread
from distsync._protocols.locks.grant import Grant
from distsync._protocols.locks.lock import LockCore

if TYPE_CHECKING:
    from distsync._client.client import Client


class CachedLockFastPath:
    """A grant that may be cached, as used by one lock object.

    Args:
        core: The in-process state of the lock.
        grant: The grant.
        client: The client of the lock object.
        uses_default_client: Whether ``client`` is the default client, which another may replace.
    """

    __slots__ = ("client", "core", "grant", "lease", "mark", "mutex", "session_id", "uses_default_client")

    def __init__(self, core: LockCore, grant: Grant, client: Client, uses_default_client: bool) -> None:
        self.core, self.grant, self.session_id = core, grant, grant.entry.session_id
        self.client, self.uses_default_client = client, uses_default_client
        self.mark = process.mark
        self.mutex: Any
        self.mutex, self.lease = client._fast_path_state()

    # Both methods avoid every unnecessary call, because a single call takes a tenth of the time that they may take.
    # Each appends a snapshot to ``before`` before it changes anything: see locks.py about interrupts.

    def acquire_from_cache(self, before: list[Any]) -> bool:
        """Acquire the lock for this thread if it is cached. Return whether it was."""
        core, grant = self.core, self.grant
        if (
            core.cached is not grant
            or grant.loss.fired
            or not self.mark[0]  # in a forked child
            or (self.uses_default_client and current.client is not self.client)
        ):
            return False
        mutex, lease = self.mutex, self.lease
        if mutex._is_owned():  # in a finalizer that interrupts a protocol: the driver refuses the call
            return False
        with mutex:
            # read before the session id: see _client/lease/lease_clock.py
            until = lease.proven_at + lease.valid_for
            if core.cached is not grant or lease.session_id != self.session_id:
                return False
            before.append((None, None, 0, tuple(core.unreported_losses)))
            return lease_clock() < until and core.acquire_from_cache(this_thread.token)

    def release_to_cache(self, before: list[Any], mine: bool = False) -> bool:
        """Release the lock into the cache or to a local waiter. Return whether that was possible.

        With ``mine``, the lock must be held by this thread, and once only.
        """
        core, grant = self.core, self.grant
        if (
            core.grant is not grant
            or grant.loss.fired
            or not self.mark[0]  # in a forked child
            or (self.uses_default_client and current.client is not self.client)
        ):
            return False
        mutex, lease = self.mutex, self.lease
        if mutex._is_owned() or (mine and (core.owner is not this_thread.token or core.depth != 1)):
            return False
        with mutex:
            until = lease.proven_at + lease.valid_for
            if core.grant is not grant or core.unreported_losses or lease.session_id != self.session_id:
                return False
            before.append((grant, core.owner, 1, (), core.acquire_count))
            return lease_clock() < until and core.release_to_cache()
