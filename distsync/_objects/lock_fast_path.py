"""The way past the driver: a lock that this process keeps is taken again, and put by, without a protocol.

Rules for this file: no znode, no wait, and nothing that _protocols/locks/lock.py does not decide; it looks at the lease
clock and runs one step of a LockCore under the client's mutex, as a driver would between two awaits. Whatever is not as
usual is for the protocol: then it says False, and nothing has happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distsync._client.clocks import lease_now
from distsync._client.default_client import current
from distsync._client.lease.lease_clock import VALID_FRACTION
from distsync._objects.base import this_thread
from distsync._protocols.locks.grant import Grant
from distsync._protocols.locks.lock import LockCore

if TYPE_CHECKING:
    from distsync._client.client import Client


class CachedLockFastPath:
    """One grant that may be kept, as one object uses it."""

    __slots__ = ("client", "core", "grant", "lease", "mutex", "session_id", "uses_default_client")

    def __init__(self, core: LockCore, grant: Grant, client: Client, uses_default_client: bool) -> None:
        """``uses_default_client``: the client is the default one, whichever that is."""
        self.core, self.grant, self.session_id = core, grant, grant.place.session_id
        self.client, self.uses_default_client = client, uses_default_client
        self.mutex: Any
        self.mutex, self.lease = client._fast_path_state()

    # Neither calls anything that it need not, for each call is a tenth of what these may take. Each notes in ``before``
    # what was held before it changes anything: see locks.py about interrupts.

    def acquire_from_cache(self, before: list[Any]) -> bool:
        """Whether the lock was kept, and now this thread holds it."""
        core, grant = self.core, self.grant
        if (
            core.cached is not grant
            or grant.loss.fired
            or (self.uses_default_client and current.client is not self.client)
        ):
            return False
        mutex, lease = self.mutex, self.lease
        if mutex._is_owned():  # a finalizer in the midst of a protocol: the driver refuses it
            return False
        with mutex:
            # before the session: see _client/lease/lease_clock.py
            until = lease.proven_at + lease.timeout * VALID_FRACTION
            if core.cached is not grant or lease.session_id != self.session_id:
                return False
            before.append((None, None, 0, tuple(core.unreported_losses)))
            return lease_now() < until and core.acquire_from_cache(this_thread.token)

    def release_to_cache(self, before: list[Any], mine: bool = False) -> bool:
        """Whether the lock was held, by this thread if it has to be, and is kept now, or another thread's."""
        core, grant = self.core, self.grant
        if (
            core.grant is not grant
            or grant.loss.fired
            or (self.uses_default_client and current.client is not self.client)
        ):
            return False
        mutex, lease = self.mutex, self.lease
        if mutex._is_owned() or (mine and (core.owner is not this_thread.token or core.depth != 1)):
            return False
        with mutex:
            until = lease.proven_at + lease.timeout * VALID_FRACTION
            if core.grant is not grant or core.unreported_losses or lease.session_id != self.session_id:
                return False
            before.append((grant, core.owner, 1, (), core.taken))
            return lease_now() < until and core.release_to_cache()
