"""Base of all shared objects: a name, a path, a client, and pickling by name.

An object has no state of its own. The state that the threads of a process share about it belongs
to its client, and is found by the object's path (`Client.local`). Therefore objects with the same
name share their state, a forked child starts with nothing held, and a pickle contains only the name, the
server and the namespace.
"""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from distsync._client import contender_info, lifecycle
from distsync._client import default_client as default
from distsync._client.contender_info import Contender
from distsync._client.deadlines import ask_timeout, limit_calls
from distsync._client.naming import inference
from distsync._client.naming.paths import (
    bound_object_path,
    check_path,
    creator_in,
    folder_label,
    is_part,
    object_path,
    process_objects_path,
    users_path,
)
from distsync._import_gate import importing
from distsync._objects.validation import validate_timeout
from distsync._pickle import stable_pickle_name
from distsync._protocols.receipts import Receipts
from distsync._protocols.retries import delete_tree, find_foreign_child, remove_tree
from distsync._signal_handlers import interruptible_at_entry, is_from_handler, is_inside
from distsync.errors import (
    ClientClosedError,
    DeadlineError,
    DistsyncError,
    LockLostError,
    MismatchError,
    NotEmptyError,
    NotHeldError,
    OutcomeUnknownError,
    StillUsedError,
)

if TYPE_CHECKING:
    from distsync._client.client import Client
    from distsync._objects.unnamed import Reference

CoreT = TypeVar("CoreT")


class _ThreadToken(threading.local):
    """A token for each thread. Unlike a thread identifier, it is never reused."""

    def __init__(self) -> None:
        self.token = object()


this_thread = _ThreadToken()


class _PickleUse(threading.local):
    """What becomes of the pickles that this thread makes or reads now.

    Attributes:
        is_moved: Whether it is in a queue, which gives it to one receiver. Such a pickle is a reference of its own.
        is_copied: Whether the object is copied, and no pickle is made.
        received: Where to add the objects without a name that are made from such a pickle.
    """

    is_moved = False
    is_copied = False

    def __init__(self) -> None:
        self.received: list[SharedObject] = []


pickle_use = _PickleUse()


def current_owner() -> object:
    """Return the current thread's token, which denotes it as the owner of what it holds."""
    return this_thread.token


def _check_client(client: object) -> None:
    with importing():
        from distsync._client.client import Client  # deferred: it imports kazoo

    if not isinstance(client, Client):
        raise TypeError(f"client must be a distsync Client, not {type(client).__name__}")


def _import_lifetimes() -> None:
    """Import what the first use of an object that was given no name needs.

    A signal handler that interrupted an import at the first use, and used the object too, would find a module that is
    only partially initialized.
    """
    with importing():  # deferred: most programs need neither
        import distsync._objects.module_membership
        import distsync._objects.unnamed  # noqa: F401


def _checked_acl(acl: Sequence[Any]) -> tuple[Any, ...]:
    with importing():
        from distsync._client.settings import check_acl  # deferred: most objects have no ACL of their own

    return check_acl(acl)


def close_unstarted(protocol: Coroutine[Any, Any, Any]) -> None:
    """Close the protocol of a call that was interrupted before it.

    Otherwise Python warns of a coroutine that was never awaited when it is freed, and swallows what
    a signal handler raises at that moment.
    """
    if inspect.getcoroutinestate(protocol) == inspect.CORO_CREATED:
        protocol.close()


def shorten_interrupt(error: BaseException, kind: type[BaseException] = KeyboardInterrupt) -> None:
    """Remove the frames below the caller's from the traceback of an interrupt, unless one is of the program.

    Args:
        error: What an ``except`` block of the caller has caught, and raises again with ``raise``.
        kind: The class of an interrupt.
    """
    trace = error.__traceback__
    if trace is not None and isinstance(error, kind) and is_inside(trace):
        error.__traceback__ = None
        trace.tb_next = None  # Python 3.10 keeps the traceback for ``raise``


def ask_timeout_of(client: Client, timeout: float | None) -> float | None:
    """Return the timeout in seconds of a call that asks the server. Raises the errors of `SharedObject._ask`."""
    seconds = validate_timeout(timeout, "call")
    return ask_timeout(seconds, client.settings.timeout if timeout is None else None)


def raise_if_late(unknown: OutcomeUnknownError) -> None:
    """Raise DeadlineError if the deadline of the call is why its outcome is unknown."""
    operation, path, ended, *reason = unknown.args
    if ended == "deadline":
        raise DeadlineError(f"{operation} on {path}, which may or may not be executed", *reason) from unknown


class _HasClient(Protocol):
    @property
    def client(self) -> Client: ...


def explain_outage(subject: _HasClient, error: BaseException) -> None:
    """Add to the error of a call that ended by its deadline why there is no server, if that is known."""
    if isinstance(error, (DeadlineError, OutcomeUnknownError)):
        failure = subject.client._outage()
        if failure is not None and str(failure) not in error.args:
            error.args = (*error.args, str(failure))


#: Called with each object, at its creation.
creation_listeners: list[Callable[[SharedObject], object]] = []


class SharedObject:
    """Base of all objects that are shared by name."""

    #: The folder of the namespace that contains objects of this kind.
    _kind: ClassVar[str]
    _acl: tuple[Any, ...] | None = None
    #: Whether the use of an object that no other process can find is worth a warning. It is not if the object is
    #: useful alone, or made to be passed to children.
    _needs_name: ClassVar[bool] = True
    #: Whether an object without a name belongs to its creator alone, wherever it is assigned.
    _is_private_if_unnamed: ClassVar[bool] = False
    #: The object whose assignment determines the name, if not this object itself.
    _naming_target: object = None
    #: The module in which the object is bound to its name; None if it was given a name, or has none.
    _module: inference.Module | None = None
    #: Whether processes remember versions of the object's znodes, which begin again after `destroy`.
    _has_versions: ClassVar[bool] = False
    #: The process that created the object, or that to which this one belongs, if it has no name. Such objects live
    #: below a folder of that process.
    _home: str | None = None
    #: The token of the pickle from which the object was made, and which no other process can read any more.
    _token: str | None = None
    #: This process's reference to the object without a name, which copies share.
    _reference: Reference | None = None

    def __init__(
        self, name: str | None, client: Client | None, path: str | None, acl: Sequence[Any] | None = None
    ) -> None:
        if client is not None:
            _check_client(client)
        if path is not None and name is not None:
            raise TypeError("give name or path, not both")
        self._explicit_client = client
        self._explicit_path = None if path is None else check_path(path)
        if acl is not None:
            self._acl = _checked_acl(acl)
        if path is not None:
            resolved, self._home = inference.Name(path, False), creator_in(path)
        elif name is None and self._is_private_if_unnamed:
            place = inference.creation_place(self._naming_target or self)
            resolved = inference.Name(inference.fresh_name(), True, place)
        else:
            resolved = inference.resolve(self._naming_target or self, name, by_site=self._needs_name)
        self._name, self._is_unnamed, self._creation, self._module = resolved
        self._reports_use = self._creation is not None and self._needs_name
        self._creator_pid, self._forks, self._was_pickled = os.getpid(), lifecycle.fork_count(), False
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._state_entry: Any = None
        if self._is_unnamed:
            lifecycle.register_before_fork(self)
            if not self._is_private_if_unnamed:
                with importing():
                    from distsync._client.process_identity import identity_of  # deferred: others have a name

                self._home = identity_of(self._creator_pid)
        if self._module is not None:
            inference.bound_modules[self._module, client] = None
        if self._module is not None or self._home is not None:
            _import_lifetimes()
        for listener in creation_listeners:
            listener(self)

    def _bind(self, module: inference.Module | None) -> None:
        """Let this be the object that is bound to its name in ``module``."""
        self._module = module
        if module is not None:
            _import_lifetimes()
            inference.bound_modules[module, self._explicit_client] = None

    @property
    def name(self) -> str:
        """The name by which other processes find this object."""
        return self._name

    @property
    def client(self) -> Client:
        """The client that this object uses: the given one, or the default client."""
        return self._explicit_client or default.default_client()

    @property
    def path(self) -> str:
        """The path of this object's znode."""
        return self._path_in(self.client) if self._explicit_path is None else self._explicit_path

    def _path_in(self, client: Client) -> str:
        """Return the path of this object's znode in the namespace of ``client``."""
        if self._module is not None:
            module = self._module
            key, name = module.key(client.hosts is None), module.relative(self._name)
            return bound_object_path(client.namespace, key, self._kind, name)
        if self._home is not None:
            return object_path(process_objects_path(client.namespace, self._home), self._kind, self._name)
        return object_path(client.namespace, self._kind, self._name)

    def _shared_state(self, make: Callable[[str], CoreT]) -> CoreT:
        """Return the state of this object that all threads of this process share."""
        if self._reports_use:
            self._report_use()
        client = self.client
        path = self._path_in(client) if self._explicit_path is None else self._explicit_path
        if self._acl is not None:
            client.protect(path, self._acl)
        if self._home is not None:
            self._refer(client)
        return client.local(path, partial(make, path), self._kind, self)

    def _refer(self, client: Client) -> Reference:
        """Return the reference of this process to this object without a name, making it if there is none.

        Other threads, and a signal handler that interrupts this, may do the same. One of the references that they
        make is then used by all, and the others end nothing.
        """
        reference = self._reference
        while reference is None or not reference.is_of(client):
            with importing():
                from distsync._objects.unnamed import Reference  # loaded by _import_lifetimes
            is_creator = self._is_unnamed and self._creator_pid == os.getpid()
            token = self._token if reference is None else None
            made = Reference(client, str(self._home), self._name, self.path, is_creator, token)
            if reference is None:
                reference = vars(self).setdefault("_reference", made)
            else:  # it is that of a parent process, or of a client that is no longer the default
                self._reference = reference = reference.succeeded_by(made)
        reference.confirm()
        return reference

    def _report_use(self) -> None:
        """Tell the program that it uses an object that no other process can find, unless one can."""
        if self._creation is not None and self._creator_pid == os.getpid():
            self._creation.report_use()
        self._reports_use = False

    @property
    def _is_anonymous(self) -> bool:
        """Whether no other process can find the object by its name."""
        return self._is_unnamed

    @property
    def _is_fresh(self) -> bool:
        """Whether the object is in its initial state: no process has used it, and no other one knows it."""
        is_private = self._is_unnamed and not self._was_pickled and self._forks == lifecycle.fork_count()
        return is_private and self._reference is None and self._creator_pid == os.getpid()

    def mark_shared(self) -> None:
        """Note that other processes may use the object from now on, so that its use is worth no warning.

        What they leave of an object without a name is deleted when the client closes, if no process uses it then.

        This is called before a fork and when the object is pickled.
        """
        if self._creation is not None:
            self._creation.travelled = True
        if self._home is not None and self._reference is None and self._creator_pid == os.getpid():
            with importing():
                from distsync._objects.unnamed import share_unused  # deferred: it is for objects without a name

            with suppress(DistsyncError):
                share_unused(self.client)

    @property
    def _receipts(self) -> Receipts:
        client = self.client
        directory = f"{client.namespace.rstrip('/')}/receipts"
        return client.local(directory, partial(Receipts, directory))

    def _with_receipts(self, make: Callable[..., CoreT], path: str, **options: Any) -> CoreT:
        """Return new state of this object that uses the receipts of this process."""
        return make(path, receipts=self._receipts, **options)

    @interruptible_at_entry
    def _run(self, protocol: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
        try:
            return self.client.run(self._as_member(protocol, True), timeout, self)
        except BaseException as error:
            close_unstarted(protocol)
            explain_outage(self, error)
            shorten_interrupt(error)
            raise

    def _late(self) -> bool:
        """Return False, for a call that was late. Raise if that is because the embedded server cannot be restarted."""
        failure = self.client._outage()
        if failure is not None:
            raise failure
        return False

    def _was_released_at_end(self, error: BaseException) -> bool:
        """Return whether a release failed with ``error`` only because the end of the process had released this."""
        return isinstance(error, ClientClosedError) and self.client.was_held_at_end(self.path)

    def _as_member(self, protocol: Coroutine[Any, Any, Any], blocks: bool = False) -> Coroutine[Any, Any, Any]:
        """Return a protocol that joins the generation to which the object belongs first, if that is necessary.

        Args:
            protocol: The protocol of a call.
            blocks: Whether the calling thread does nothing else until the protocol has ended.

        Returns:
            The protocol to drive.
        """
        if self._module is None and self._home is None:
            return protocol
        return self._joining(blocks)(protocol)

    def _joining(self, blocks: bool) -> Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]:
        """Return a function that does what `_as_member` does, and does not refer to this object."""
        client = self.client
        with importing():  # loaded by _import_lifetimes
            from distsync._objects.module_membership import as_member
            from distsync._objects.unnamed import as_user
        if self._module is not None:
            return partial(as_member, client, self._module, blocks)
        if self._home is not None and self.path.startswith(process_objects_path(client.namespace, self._home)):
            self._refer(client).begin_use()
            return partial(as_user, client, self._home, blocks)
        return _unchanged

    @interruptible_at_entry
    def _ask(self, protocol: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
        """Run a protocol that waits for replies of the server, and not for another process.

        Args:
            protocol: The protocol.
            timeout: The caller's: seconds, -1 to wait forever, or None for the limit of the block
                (`timeout`) or the client's default.

        Returns:
            The result of the protocol.

        Raises:
            TypeError: ``timeout`` is not a number.
            ValueError: ``timeout`` is negative or NaN.
            OverflowError: ``timeout`` exceeds ``threading.TIMEOUT_MAX``.
            DeadlineError: No server answered in time. A write may still be executed, unless ``sent``
                is False.
        """
        try:
            return self._run(protocol, ask_timeout_of(self.client, timeout))
        except OutcomeUnknownError as unknown:
            raise_if_late(unknown)
            raise
        except BaseException:
            close_unstarted(protocol)
            raise

    def _limited(self, timeout: float | None) -> AbstractContextManager[None]:
        """Return a context in which all calls of `_ask` together have a timeout like that of one."""
        return limit_calls(ask_timeout_of(self.client, timeout))

    def destroy(self, timeout: float | None = None) -> None:
        """Delete the object and all that it stores, for all processes.

        Its next use creates it afresh, also with other arguments. What any process holds of it is
        lost, as if the session had ended: ``held`` is False, ``on_lost`` is called, and a release
        raises LockLostError. Waiting calls continue with the fresh object, so stop the processes
        that use the object, if it is not to be created at once. If it does not exist, nothing
        happens.

        Args:
            timeout: Maximum wait in seconds; None uses the client's default, and -1 waits forever.

        Raises:
            TypeError: ``timeout`` is not a number.
            ValueError: The given path is a folder of the namespace, or has znodes below it that do not
                belong to an object of this class. Nothing was deleted. Or ``timeout`` is negative.
            DeadlineError: The object was not deleted in time. Subclass of TimeoutError.
            StillUsedError: Other processes keep adding to the object.
            AccessDeniedError: An ACL denies the access.
            UnreachableError: No server could be reached for the client's first connection.

        Note:
            Costs 3 requests in 2 round trips for an object without children, 2 if it does not exist,
            and 1 for each znode that may have children. 1,000 items are deleted in 1 round trip. With
            ``path=``, it costs 2 more in 1 more round trip, and 1 more for each child of another name
            than the object gives.

            If the reply is lost, it is repeated, but a fresh object is not deleted. If interrupted,
            or at the deadline, the object may be deleted, or a part of its contents: call it again.

            Source: ours; ZooKeeper's multi.
        """
        self._ask(self._destruction(), timeout)

    async def _destruction(self) -> None:
        client, path, receipts = self.client, self.path, self._receipts
        if self._explicit_path is not None:
            await self._check_only_object(client.namespace, path)
        if self._has_versions:
            await receipts.basis()  # creates the znode that is written
        try:
            for each in self._side_paths:
                await delete_tree(each)
            if self._has_versions:
                await delete_tree(path, receipts.destruction())
            else:
                await self._delete_tree(path)
        except NotEmptyError:
            raise StillUsedError(path) from None
        client.forget_destroyed(path)

    async def _check_only_object(self, namespace: str, path: str) -> None:
        """Raise ValueError if other objects are below ``path``, as far as its znodes show."""
        folder = folder_label(namespace, path)
        if folder is not None:
            raise ValueError(f"{path} cannot be destroyed: it is {folder}; give the path of one object")
        child = await find_foreign_child(path, partial(is_part, self._kind))
        if child is not None:
            raise ValueError(
                f"{path} cannot be destroyed: {path}/{child} does not belong to a {type(self).__name__}; destroy the "
                "objects below the path first, or give the path of one object"
            )

    async def _delete_tree(self, path: str) -> None:
        """Delete the znodes of an object that has no versions."""
        await delete_tree(path)

    @property
    def _side_paths(self) -> tuple[str, ...]:
        """Paths of the object's znodes that are not below its own, as another client's recipe has them."""
        return ()

    def _holder_among(self, names: tuple[str, ...]) -> str | None:
        """Return which child of the znode currently holds the object; None if that is unknown."""
        return None

    def _arguments(self) -> tuple[Any, ...]:
        """Return the positional arguments, without the name, for the constructor on unpickling."""
        return ()

    def _options(self) -> dict[str, Any]:
        """Return the keyword arguments for the constructor on unpickling."""
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        options = self._options() if self._acl is None else {**self._options(), "acl": self._acl}
        if self._home is not None and self._explicit_path is None:
            token = None if pickle_use.is_copied else self._pickled()
            origin = self.client.origin
            return unnamed_object, (type(self), self._arguments(), self._name, self._home, token, origin, options)
        self._was_pickled = True
        if self._finalizer is not None:
            self._finalizer.detach()  # others may use it now: it is deleted when the creating client closes
        self.mark_shared()
        path = self._explicit_path
        origin = self.client.origin
        name = None if path else self._name if self._module is None else (self._name, *self._module)
        return shared_object, (type(self), self._arguments(), name, path, origin, options)

    def _pickled(self) -> str | None:
        """Note that this object without a name is pickled. Return the token of the pickle, if it has one."""
        self._was_pickled = True
        self.mark_shared()
        reference = self._refer(self.client)
        if pickle_use.is_moved:
            return reference.issue()
        reference.keep()
        return None

    def _return_token(self) -> None:
        """Leave the reference to the pickle from which the object was made, because another process will read it."""
        if self._reference is not None:
            self._reference.disclaim()

    def __copy__(self) -> Any:
        """Return another Python object for the same object. Both have the same lifetime in this process."""
        try:
            pickle_use.is_copied = True
            make, arguments = self.__reduce__()[:2]
        finally:
            pickle_use.is_copied = False
        made = make(*arguments)
        if self._home is not None:
            made._reference = self._refer(self.client)
        return made

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()


def _unchanged(protocol: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
    return protocol


class ParametrizedObject(SharedObject):
    """Base of objects whose znode records parameters.

    The state of such an object has the attributes ``wanted`` and ``user``. If the parameters can be
    changed, it implements `parameter_users.Parametrized`.
    """

    #: The parameters of this object, by what an error calls them.
    _parameters: dict[str, Any]
    _on_mismatch = "error"
    #: Whether the object, or the manager to which it belongs, has no name, so that all users have our parameters.
    _is_temporary: bool | None = None

    def _options(self) -> dict[str, Any]:
        return {} if self._on_mismatch == "error" else {"on_mismatch": self._on_mismatch}

    @property
    def _side_paths(self) -> tuple[str, ...]:
        return () if self._find_temporary() else (users_path(self.client.namespace, self.path),)

    def _find_temporary(self) -> bool:
        if self._is_temporary is None:
            self._is_temporary = any(map(inference.is_fresh_name, self._name.split("/")))
        return self._is_temporary

    @property
    def _in_force(self) -> dict[str, Any]:
        """The parameters that this process works with, as far as it knows: its own, or adopted ones."""
        entry = self._state_entry
        found: dict[str, Any] = self._parameters if entry is None else entry.value.parameters
        return found

    def _agreed_state(self, make: Callable[[str], Any]) -> Any:
        """Return the state that all threads of this process share, if it is for our parameters."""
        core = self._shared_state(make)
        return core if core.wanted == self._parameters else self._replaced_state(make)

    def _replaced_state(self, make: Callable[[str], Any]) -> Any:
        """Return a new state if no other object of this process uses the old one. Raises MismatchError."""
        path, ours = self.path, self._parameters
        self.client.replace_local(path, self)
        core = self._shared_state(make)
        if core.wanted == ours:
            return core
        name = next(each for each in ours if core.wanted.get(each) != ours[each])
        raise MismatchError(f"the {name}", path, core.wanted.get(name), ours[name], "another object of this process")

    def _using(self, core: Any, protocol: Callable[[], Coroutine[Any, Any, Any]]) -> Coroutine[Any, Any, Any]:
        """Return a protocol that registers this process as a user first, if that is necessary."""
        user = core.user
        if user is not None and user.session_id is not None and user.session_id == self.client.session_id:
            return protocol()
        if self._find_temporary() or not hasattr(core, "new_record"):
            return protocol()
        with importing():
            from distsync._objects.parameters import as_user  # deferred: it is for named objects

        return as_user(self.client, core, self.path, self._acl, self._on_mismatch, protocol)


def create_wrapped(wrapper: object, kind: Any, *args: Any, **options: Any) -> Any:
    """Create an object that ``wrapper`` delegates to, named after the assignment of ``wrapper``."""
    wrapped = kind.__new__(kind)
    wrapped._naming_target = wrapper
    wrapped.__init__(*args, **options)
    wrapped._naming_target = None
    return wrapped


def forget_unnamed(client: Client, path: str, forks: int) -> None:
    """Delete the znodes of a collected unnamed object, unless a forked child may use it too."""
    if lifecycle.fork_count() == forks:
        client.discard(path, partial(remove_tree, path))


@stable_pickle_name
def shared_object(
    kind: type[Any],
    arguments: tuple[Any, ...],
    name: str | tuple[str, str, str | None] | None,
    path: str | None,
    origin: Any,
    options: dict[str, Any],
) -> Any:
    """Return the object of this name, in the process where its pickle arrived.

    It belongs to a client of ``origin``. In pickles of earlier versions, None means the default
    client.
    """
    client = None if origin is None else default.client_of(origin)
    if not isinstance(name, tuple):
        return kind(*arguments, name=name, path=path, client=client, **options)
    found = kind(*arguments, name=name[0], client=client, **options)
    found._bind(inference.Module(*name[1:]))
    return found


@stable_pickle_name
def unnamed_object(
    kind: type[Any],
    arguments: tuple[Any, ...],
    name: str,
    home: str,
    token: str | None,
    origin: Any,
    options: dict[str, Any],
) -> Any:
    """Return the object without a name that the process ``home`` created, where its pickle arrived.

    Args:
        kind: The class of the object.
        arguments: The positional arguments for the constructor, without the name.
        name: The generated name.
        home: What identifies the process that created the object.
        token: The token of the pickle, if it was put into a queue.
        origin: The server and the namespace.
        options: The keyword arguments for the constructor.

    Returns:
        The object.
    """
    found = kind(*arguments, name=name, client=default.client_of(origin), **options)
    found._home = home
    _import_lifetimes()
    if pickle_use.is_moved and token is not None:
        pickle_use.received.append(found)
        found._token = token
        found._refer(found.client)
    return found


def type_name(obj: object) -> str:
    """Return the module and name of the class of ``obj``, for its repr."""
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


def exit_context(release: Callable[[], None], error: BaseException | None) -> None:
    """Release at the end of a ``with`` block; a loss becomes a note of the block's own ``error``."""
    try:
        release()
    except (LockLostError, NotHeldError) as lost:
        if error is None or is_from_handler(lost):
            raise
        if hasattr(error, "add_note"):
            error.add_note(f"distsync: {lost}")


def parse_contenders(found: list[Any]) -> list[Contender]:
    """Return the contenders that these znodes describe."""
    return [contender_info.read(node.data, path, node.stat.czxid) for path, node in found]


class FencingToken(int):
    """A number that increases from holder to holder: the zxid of the holder's znode.

    A resource that remembers the greatest token it has seen, and refuses a smaller one, is safe
    from a former holder that has not yet noticed its loss. ``epoch`` and ``counter`` are the halves
    of a ZooKeeper transaction id.

    Example:
        >>> from distsync import FencingToken
        >>> token = FencingToken((3 << 32) + 7)
        >>> token.epoch, token.counter
        (3, 7)
    """

    __module__ = "distsync.recipes"

    @property
    def epoch(self) -> int:
        """The leader's epoch in which the ensemble granted the token: the upper 32 bits."""
        return self >> 32

    @property
    def counter(self) -> int:
        """The number of the transaction within that epoch: the lower 32 bits."""
        return self & 0xFFFFFFFF
