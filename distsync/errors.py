"""The error tree. Who must act decides the branch.

::

    DistsyncError
      UsageError                    you: fix the call
        NotHeldError      (RuntimeError)      release of what is not held
          NotOwnerError   (AssertionError)      ... of multiprocessing's RLock or Condition
        UpgradeError      (RuntimeError)      a reader of a SharedLock that wants to write
        OverReleaseError  (ValueError)        a BoundedSemaphore released too often
          ReleasedTooOftenError                 ... or a Lock, of multiprocessing; it is a NotHeldError too
        PayloadError      (ValueError)        an item that cannot be sent
          PayloadTooLargeError                  ... it is over the size limit
          PayloadPickleError                    ... it does not pickle, or not to JSON
        NameInUseError    (TypeError)         one name, two kinds of object
        NameTakenError    (ValueError)        a name of a registry that somebody else has
        MismatchError     (ValueError)        members disagree about a parameter
        VoteRefusedError  (RuntimeError)      a vote after the decision
        ConfigurationError (ValueError)       a setting that cannot be used
        PatchError        (ValueError)        a module that cannot be patched
      UnavailableError              the world: stop the protected work, or try again
        LockLostError     (RuntimeError)      what was held is held no longer
        UnreachableError  (ConnectionError)   no server answers
          ServerStartError                      ... and the embedded one does not start
        SessionLostError  (ConnectionError)   the ZooKeeper session has ended
        OutcomeUnknownError (ConnectionError) the call may or may not have taken effect
        ClientClosedError (RuntimeError)      the client was closed
        AccessDeniedError (PermissionError)   an ACL forbids
        DeadlineError     (TimeoutError)      the deadline of the call has passed
        SequenceExhaustedError (RuntimeError) a line in which a server numbers nobody any more
        ObjectRemovedError (ReferenceError)   a shared object that somebody has removed
        TaskLostError     (RuntimeError)      a pool's task whose workers die, or that has gone
        WorkerStartError  (RuntimeError)      a pool's workers end before they begin
      PeerError                     the peer: somebody wrote what he should not
        PayloadRefusedError                   unsigned, altered or unreadable item
        CorruptNodeError                      a znode that holds no sense
      ZnodeError                    the ensemble's answer about one znode (internal to protocols)
        NoNodeError, NodeExistsError, BadVersionError, NotEmptyError,
        ChildrenOfEphemeralError, DisconnectedError, RequestError

Each error keeps its fields; ``str`` composes them into a sentence that says what to do; each pickles.
"""

from __future__ import annotations

from queue import Full as Full
from threading import BrokenBarrierError as BrokenBarrierError
from typing import Any

try:
    from queue import ShutDown as ShutDown  # type: ignore[attr-defined,unused-ignore]
except ImportError:  # before Python 3.13

    class ShutDown(Exception):  # type: ignore[no-redef,unused-ignore]
        """Raised by put and get of a queue that was shut down: as ``queue.ShutDown`` of Python 3.13."""


class DistsyncError(Exception):
    """Root of every error that distsync itself raises."""

    template = "{0}"

    def __init__(self, *fields: Any) -> None:
        Exception.__init__(self, *fields)  # OSError's own would keep only two of them

    def __str__(self) -> str:
        try:
            return self.template.format(*self.args)
        except (IndexError, KeyError):
            return ", ".join(str(field) for field in self.args)


class UsageError(DistsyncError):
    """The call is wrong; fix the call."""


class NotHeldError(UsageError, RuntimeError):
    """A release, wait or notify on something that the caller does not hold."""


class UpgradeError(UsageError, RuntimeError):
    """A thread that reads wants to write: it would wait for itself. Fields: path."""

    template = (
        "cannot upgrade from reader to writer on {0}: release the read lock first, or acquire the write lock "
        "from the start"
    )


class OverReleaseError(UsageError, ValueError):
    """A BoundedSemaphore was released more often than it was acquired."""


class NotOwnerError(NotHeldError, AssertionError):
    """As NotHeldError, for the objects of multiprocessing that belong to a thread."""


class ReleasedTooOftenError(NotHeldError, OverReleaseError):
    """A Lock or BoundedSemaphore of multiprocessing that nobody holds was released. Fields: path."""

    template = "semaphore or lock released too many times: {0}"


class PayloadError(UsageError, ValueError):
    """An item that cannot be sent; nothing was put."""


class PayloadTooLargeError(PayloadError):
    """Fields: what, its size in bytes, the limit in bytes."""

    template = "{0} is {1} bytes, which exceeds the limit of {2} bytes: send a reference to the data instead"


class PayloadPickleError(PayloadError):
    """Fields: what, codec, reason."""

    template = "{0} cannot be encoded with {1}: {2}"


class NameInUseError(UsageError, TypeError):
    """Fields: path, the kind found, the kind asked for."""

    template = "{0} is already a {1} and cannot be used as a {2}: choose another name"


class NameTakenError(UsageError, ValueError):
    """Fields: the name, the registry's path, who has it."""

    template = "{0!r} in {1} is already registered by {2}: pass replace=True, or choose another name"


class MismatchError(UsageError, ValueError):
    """Fields: what, path, value found, value asked for."""

    template = (
        "{0} of {1} is {2}, not {3}: all processes must use the same; to change it, stop them and delete {1}, or "
        "choose another name"
    )


class VoteRefusedError(UsageError, RuntimeError):
    """It was decided without this vote. Fields: path, site, the decision, its reason."""

    template = "the vote of {1!r} in {0} is too late, the decision is {2} ({3}): carry out the decision"


class ConfigurationError(UsageError, ValueError):
    """Fields: setting, value, what is allowed."""

    template = "{0}={1!r} cannot be used: {2}"


class PatchError(UsageError, ValueError):
    """Nothing was patched. Fields: the module or ``file:line``, what is the matter, what to do."""

    template = "{0}: {1}: {2}"


class UnavailableError(DistsyncError):
    """Something outside failed; stop the protected work, or try again."""


class LockLostError(UnavailableError, RuntimeError):
    """What was held is held no longer. Fields: path, reason."""

    template = "{0} was lost while held ({1}): stop the protected work, another process may hold it now"


class UnreachableError(UnavailableError, ConnectionError):
    """No server answered. Fields: hosts, seconds waited, the setting to change, and how the last attempt ended."""

    template = "no ZooKeeper server answered at {0} within {1:.1f} s: start one, or set {2}"

    def __str__(self) -> str:
        ended = self.args[3] if len(self.args) > 3 else ""
        return f"{super().__str__()}. Last attempt: {ended}" if ended else super().__str__()


class ServerStartError(UnreachableError):
    """The embedded server could not be started. Fields: the reason, its log file."""

    template = "the embedded server does not start: {0}. See its log {1}, or set DISTSYNC_HOSTS to use another server"


class SessionLostError(UnavailableError, ConnectionError):
    """The session ended, its ephemeral nodes are gone. Fields: what was going on."""

    template = "the ZooKeeper session ended during {0}: what it held is lost, call again"


class OutcomeUnknownError(UnavailableError, ConnectionError):
    """The call may or may not have taken effect. Fields: operation, path, what ended before the answer came."""

    template = (
        "{0} on {1} may or may not have taken effect, the {2} ended before the reply arrived: read the state "
        "before you repeat it"
    )


class ClientClosedError(UnavailableError, RuntimeError):
    """The client was closed. Fields: what was asked of it."""

    template = "the client is closed, {0} needs an open one: call distsync.connect()"


class AccessDeniedError(UnavailableError, PermissionError):
    """An ACL forbids. Fields: path, permission."""

    template = (
        "{0}: the ACL of this znode or of its parent does not grant {1} to this client's identities: check auth= "
        "and acl="
    )


class DeadlineError(UnavailableError, TimeoutError):
    """The deadline of the call passed. Fields: what was waited for.

    ``sent`` is False where the requests that were waited for surely never left this process.
    """

    sent = True

    template = "timed out: {0}"


class SequenceExhaustedError(UnavailableError, RuntimeError):
    """Who stands in a line is numbered, and a server counts no further. Fields: path."""

    template = (
        "{0} has had 2147483647 children, and its server numbers no more: wait until nobody has held it for a "
        "minute, or delete it"
    )


class ObjectRemovedError(UnavailableError, ReferenceError):
    """A shared object is not there any more. Fields: path."""

    template = "{0} was deleted, or the manager that made it has shut down: create it again"


class TaskLostError(UnavailableError, RuntimeError):
    """A task of a pool has no result. Fields: the task, the pool, what became of it."""

    template = "{0} in pool {1} has no result: {2}"


class WorkerStartError(UnavailableError, RuntimeError):
    """The worker processes of a pool end before they begin. Fields: the pool, how many in a row, how the last ended."""

    template = "{1} workers of pool {0} exited before they were ready, the last one with: {2}"


class PeerError(DistsyncError):
    """Somebody else wrote what he should not have."""


class PayloadRefusedError(PeerError, ValueError):
    """An item was not decoded. Fields: path, reason."""

    template = "refused to decode the item at {0}: {1}"


class CorruptNodeError(PeerError, ValueError):
    """A znode holds what no version of distsync wrote. Fields: path, what was found."""

    template = "{0} contains {1!r}, which distsync did not write: another program may use this name, choose another one"


class ZnodeError(DistsyncError):
    """The ensemble's answer about one znode. Fields: path."""

    template = "{0}"


class NoNodeError(ZnodeError):
    """There is no such znode."""

    template = "no znode {0}"


class NodeExistsError(ZnodeError):
    """The znode is there already."""

    template = "znode {0} exists already"


class BadVersionError(ZnodeError):
    """The znode's version is another one."""

    template = "znode {0} has another version"


class NotEmptyError(ZnodeError):
    """The znode has children."""

    template = "znode {0} has children"


class ChildrenOfEphemeralError(ZnodeError):
    """An ephemeral znode cannot have children."""

    template = "the parent of {0} is ephemeral"


class DisconnectedError(ZnodeError):
    """The connection broke before the answer: a write may or may not have been executed.

    ``sent`` is False where the request surely never left this process.
    """

    template = "connection lost before the answer about {0}"
    sent = True


class RequestError(ZnodeError):
    """Any other refusal by the server. Fields: path, ZooKeeper's error name or code, maybe what to do."""

    template = "the server refused the request about {0}: {1}"

    def __str__(self) -> str:
        return f"{super().__str__()}: {self.args[2]}" if len(self.args) > 2 else super().__str__()
