"""The exceptions of distsync, grouped by what the caller should do about them.

::

    DistsyncError
      UsageError                    fix the call
        NotHeldError      (RuntimeError)      release, wait or notify without holding the lock
          NotOwnerError   (AssertionError)      the same, for a thread's own lock of multiprocessing
        UpgradeError      (RuntimeError)      a reader of a SharedLock asked for the write lock
        OverReleaseError  (ValueError)        a BoundedSemaphore was released too many times
          ReleasedTooOftenError                 the same, for multiprocessing; also a NotHeldError
        PayloadError      (ValueError)        an item cannot be sent
          PayloadTooLargeError                  it exceeds the size limit
          PayloadPickleError                    it cannot be pickled, or encoded as JSON
        NameInUseError    (TypeError)         the name belongs to another kind of object
        NameTakenError    (ValueError)        the name is already registered in a registry
        MismatchError     (ValueError)        processes disagree about a parameter
        VoteRefusedError  (RuntimeError)      a vote after the decision
        ConfigurationError (ValueError)       an invalid setting
        PrivateObjectError (RuntimeError)     the use of an object that only this process can find
        PatchError        (ValueError)        a module that cannot be patched
      UnavailableError              stop the protected work, or try again
        LockLostError     (RuntimeError)      a lock was lost while it was held
        UnreachableError  (ConnectionError)   no server answered
          ServerStartError                      the embedded server did not start
        SessionLostError  (ConnectionError)   the ZooKeeper session ended
        OutcomeUnknownError (ConnectionError) the call may or may not have taken effect
        ClientClosedError (RuntimeError)      the client was closed
        AccessDeniedError (PermissionError)   an ACL denies the access
        DeadlineError     (TimeoutError)      the deadline of the call passed
        SequenceExhaustedError (RuntimeError) a queue of contenders used up its sequence numbers
        ObjectRemovedError (ReferenceError)   a shared object was deleted
        StillUsedError    (RuntimeError)      other processes use the object that is to be deleted
        TaskLostError     (RuntimeError)      a task of a pool has no result
          TaskTimeoutError (TimeoutError)     it ran longer than ``task_timeout``
        WorkerStartError  (RuntimeError)      the workers of a pool exit before they are ready
      PeerError                     another program wrote invalid data
        PayloadRefusedError                   an item is unsigned, altered or unreadable
        CorruptNodeError                      a znode contains invalid data
      ZnodeError                    a server's reply about one znode (internal to protocols)
        NoNodeError, NodeExistsError, BadVersionError, NotEmptyError,
        ChildrenOfEphemeralError, DisconnectedError, RequestError

The fields of an error are its ``args``. ``str()`` composes them into a sentence that says what to
do. All errors pickle.
"""

from __future__ import annotations

from queue import Full as Full
from threading import BrokenBarrierError as BrokenBarrierError
from typing import Any

try:
    from queue import ShutDown as ShutDown  # type: ignore[attr-defined,unused-ignore]
except ImportError:  # before Python 3.13

    class ShutDown(Exception):  # type: ignore[no-redef,unused-ignore]
        """A queue was shut down, like ``queue.ShutDown`` of Python 3.13."""


class DistsyncError(Exception):
    """Base of all errors that distsync itself raises.

    Args:
        *fields: The fields of the error, which the class composes into its message.
    """

    template = "{0}"

    def __init__(self, *fields: Any) -> None:
        Exception.__init__(self, *fields)  # OSError's own would keep only two of them

    def __str__(self) -> str:
        try:
            return self.template.format(*self.args)
        except (IndexError, KeyError):
            return ", ".join(str(field) for field in self.args)


class UsageError(DistsyncError):
    """The call was wrong. Fix the call."""


class NotHeldError(UsageError, RuntimeError):
    """Release, wait or notify of an object that the caller does not hold.

    Acquire it first, and release it once for each acquire.
    """


class UpgradeError(UsageError, RuntimeError):
    """A thread that holds a SharedLock as a reader asked to hold it as a writer.

    It would wait for itself. Release the read lock first, or acquire the write lock from the start.

    Its ``args`` are the path.
    """

    template = (
        "cannot upgrade from reader to writer on {0}: release the read lock first, or acquire the write lock "
        "from the start"
    )


class OverReleaseError(UsageError, ValueError):
    """A BoundedSemaphore was released more often than it was acquired.

    Release it once for each acquire.
    """


class NotOwnerError(NotHeldError, AssertionError):
    """NotHeldError for an RLock or Condition of multiprocessing, which belongs to a thread.

    Acquire it in the thread that uses it.
    """


class ReleasedTooOftenError(NotHeldError, OverReleaseError):
    """A Lock or BoundedSemaphore of multiprocessing was released, but no process held it.

    Release it once for each acquire.

    Its ``args`` are the path.
    """

    template = "semaphore or lock released too many times: {0}"


class PayloadError(UsageError, ValueError):
    """An item cannot be sent. Nothing was put."""


class PayloadTooLargeError(PayloadError):
    """An item exceeds the size limit.

    Send a reference to the data instead.

    Its ``args`` are a description of the item, its size in bytes, and the limit in bytes.
    """

    template = "{0} is {1} bytes, which exceeds the limit of {2} bytes: send a reference to the data instead"


class PayloadPickleError(PayloadError):
    """An item cannot be encoded.

    Put an item that the codec can encode, or use another codec.

    Its ``args`` are a description of the item, the codec, and the reason.
    """

    template = "{0} cannot be encoded with {1}: {2}"


class NameInUseError(UsageError, TypeError):
    """The name belongs to another kind of object.

    Choose another name.

    Its ``args`` are the path, the kind found, and the kind requested.
    """

    template = "{0} is already a {1} and cannot be used as a {2}: choose another name"


class NameTakenError(UsageError, ValueError):
    """The name is already registered in the registry.

    Pass ``replace=True``, or choose another name.

    Its ``args`` are the name, the path of the registry, and the owner of the entry.
    """

    template = "{0!r} in {1} is already registered by {2}: pass replace=True, or choose another name"


class MismatchError(UsageError, ValueError):
    """Processes use different parameters for the same object.

    Use the same parameter in all processes. A changed one is taken over as soon as no process that
    runs uses the old one: stop the users that the message names, or give the object
    ``on_mismatch="wait"`` or ``"adopt"``, where it has this option. Otherwise stop all processes and
    delete the object's znode, or choose another name.

    Its ``args`` are the parameter, the path, the value found, and the value requested. If processes
    are known that use the value found, a text that names them follows.
    """

    template = (
        "{0} of {1} is {2}, not {3}: all processes must use the same; to change it, stop them and delete {1}, or "
        "choose another name"
    )
    template_with_users = (
        "{0} of {1} is {2}, not {3}, as long as it is used by {4}: all processes must use the same; wait until they "
        'have ended, pass on_mismatch="wait" or "adopt", or choose another name'
    )

    def __str__(self) -> str:
        return self.template_with_users.format(*self.args) if len(self.args) > 4 else super().__str__()


class VoteRefusedError(UsageError, RuntimeError):
    """A vote arrived after the decision.

    Carry out the decision.

    Its ``args`` are the path, the site, the decision, and the reason of the decision.
    """

    template = "the vote of {1!r} in {0} is too late, the decision is {2} ({3}): carry out the decision"


class ConfigurationError(UsageError, ValueError):
    """A setting is not valid.

    Its ``args`` are the setting, its value, and the reason or the allowed values.
    """

    template = "{0}={1!r} cannot be used: {2}"


class ConfigurationWarning(UserWarning):
    """A warning about an environment variable that has no effect, such as a misspelt one."""

    __module__ = "distsync"


class PrivateObjectError(UsageError, RuntimeError):
    """An object without a name was used that only this process can find.

    It is raised with ``DISTSYNC_UNNAMED=error`` only; otherwise a PrivateObjectWarning says the
    same.

    Its ``args`` are the class of the object, ``file:line`` of its creation, and the reason.
    """

    template = (
        "{0} created at {1} is private to this process ({2}): assign it to a variable of its own at module or class "
        'level, give it name="...", or set DISTSYNC_UNNAMED=ignore if it is meant to be private'
    )


class PatchError(UsageError, ValueError):
    """A module cannot be patched. Nothing was patched.

    Its ``args`` are the module or ``file:line``, the problem, and the advice.
    """

    template = "{0}: {1}: {2}"


class UnavailableError(DistsyncError):
    """Something outside the program failed. Stop the protected work, or try again."""


class LockLostError(UnavailableError, RuntimeError):
    """A lock was lost while it was held.

    Stop the protected work: another process may hold the lock now.

    Its ``args`` are the path and the reason.
    """

    template = "{0} was lost while held ({1}): stop the protected work, another process may hold it now"


class UnreachableError(UnavailableError, ConnectionError):
    """No server answered.

    Start a server, or change the setting that the message names.

    Its ``args`` are the hosts, the seconds waited, the setting to change, and how the last attempt
    ended.
    """

    template = "no ZooKeeper server answered at {0} within {1:.1f} s: start one, or set {2}"

    def __str__(self) -> str:
        ended = self.args[3] if len(self.args) > 3 else ""
        return f"{super().__str__()}. Last attempt: {ended}" if ended else super().__str__()


class ServerStartError(UnreachableError):
    """The embedded server could not be started, or not again after it had ended.

    Read its log file, or set DISTSYNC_HOSTS to use another server.

    Its ``args`` are the reason and the path of the log file.
    """

    template = "the embedded server does not start: {0}. See its log {1}, or set DISTSYNC_HOSTS to use another server"


class SessionLostError(UnavailableError, ConnectionError):
    """The session ended, and its ephemeral znodes were deleted.

    Repeat the call.

    Its ``args`` are the operation.
    """

    template = "the ZooKeeper session ended during {0}: what it held is lost, call again"


class OutcomeUnknownError(UnavailableError, ConnectionError):
    """The call may or may not have taken effect.

    Read the state before you repeat the call.

    Its ``args`` are the operation, the path, and what ended before the reply: the session, for
    example. If it is known why there is no server, the reason follows.
    """

    template = (
        "{0} on {1} may or may not have taken effect, the {2} ended before the reply arrived: read the state "
        "before you repeat it"
    )

    def __str__(self) -> str:
        return "; ".join((super().__str__(), *map(str, self.args[3:])))


class ClientClosedError(UnavailableError, RuntimeError):
    """The client was closed.

    Call ``distsync.connect()`` again.

    Its ``args`` are the operation.
    """

    template = "the client is closed, {0} needs an open one: call distsync.connect()"


class AccessDeniedError(UnavailableError, PermissionError):
    """An ACL denies the access.

    Check the identities of the client (``auth=``) and the ACLs (``acl=``).

    Its ``args`` are the path and the missing permission.
    """

    template = (
        "{0}: the ACL of this znode or of its parent does not grant {1} to this client's identities: check auth= "
        "(DISTSYNC_AUTH) and acl="
    )


class DeadlineError(UnavailableError, TimeoutError):
    """The deadline of the call passed.

    Try again, or give the call more time.

    Its ``args`` are a description of the awaited event. If it is known why there is no server, the
    reason follows. ``sent`` is False if the awaited requests certainly never left this process.
    """

    sent = True

    template = "timed out: {0}"

    def __str__(self) -> str:
        return "; ".join((super().__str__(), *map(str, self.args[1:])))


class SequenceExhaustedError(UnavailableError, RuntimeError):
    """A queue of contenders has used up the sequence numbers of its znode.

    The contenders are numbered by the server, which cannot count further. Wait until no process has
    held the object for a minute, or delete its znode.

    Its ``args`` are the path.
    """

    template = (
        "{0} has had 2147483647 children, and its server numbers no more: wait until nobody has held it for a "
        "minute, or delete it"
    )


class ObjectRemovedError(UnavailableError, ReferenceError):
    """A shared object was deleted, or the manager that created it has shut down.

    Create it again.

    Its ``args`` are the path.
    """

    template = "{0} was deleted, or the manager that made it has shut down: create it again"


class StillUsedError(UnavailableError, RuntimeError):
    """`destroy` has not deleted the object, because processes use it.

    Stop them, and call it again.

    Its ``args`` are the path.
    """

    template = "{0} is still used and was not deleted: stop the processes that use it, and call destroy() again"


class TaskLostError(UnavailableError, RuntimeError):
    """A task of a pool has no result.

    Submit it again if it may run twice.

    Its ``args`` are the task, the path of the pool, and the reason.
    """

    template = "{0} in pool {1} has no result: {2}"


class TaskTimeoutError(TaskLostError, TimeoutError):
    """A task of a pool ran longer than ``task_timeout``, and its worker process was ended.

    Its ``args`` are the task, the path of the pool, and the reason.
    """


class WorkerStartError(UnavailableError, RuntimeError):
    """The worker processes of a pool exit before they are ready.

    Fix what makes them exit: the initializer, for example.

    Its ``args`` are the path of the pool, the number of workers that exited in a row, and how the
    last one exited.
    """

    template = "{1} workers of pool {0} exited before they were ready, the last one with: {2}"


class PeerError(DistsyncError):
    """Another program wrote invalid data."""


class PayloadRefusedError(PeerError, ValueError):
    """An item was not decoded, because it is unsigned, altered or unreadable.

    Give all processes the same authkey and codec.

    Its ``args`` are the path and the reason.
    """

    template = "refused to decode the item at {0}: {1}"


class CorruptNodeError(PeerError, ValueError):
    """A znode contains data that no version of distsync has written.

    Choose another name, if another program uses this one.

    Its ``args`` are the path and the data.
    """

    template = "{0} contains {1!r}, which distsync did not write: another program may use this name, choose another one"


class ZnodeError(DistsyncError):
    """A server's reply about one znode. Its ``args`` are the path."""

    template = "{0}"


class NoNodeError(ZnodeError):
    """The znode does not exist."""

    template = "no znode {0}"


class NodeExistsError(ZnodeError):
    """The znode already exists."""

    template = "znode {0} exists already"


class BadVersionError(ZnodeError):
    """The znode has another version."""

    template = "znode {0} has another version"


class NotEmptyError(ZnodeError):
    """The znode has children."""

    template = "znode {0} has children"


class ChildrenOfEphemeralError(ZnodeError):
    """The parent of the znode is ephemeral, and so cannot have children."""

    template = "the parent of {0} is ephemeral"


class DisconnectedError(ZnodeError):
    """The connection was lost before the reply. A write may or may not have been executed.

    ``sent`` is False if the request certainly never left this process.
    """

    template = "connection lost before the answer about {0}"
    sent = True


class RequestError(ZnodeError):
    """Any other refusal by the server.

    Its ``args`` are the path, the name or code of ZooKeeper's error, and optionally an advice.
    """

    template = "the server refused the request about {0}: {1}"

    def __str__(self) -> str:
        return f"{super().__str__()}: {self.args[2]}" if len(self.args) > 2 else super().__str__()
