"""What all faces share: a name, a path, a client, and a trip by pickle.

Rules for this file: no znode and no clock; a face is the stdlib's signature around one protocol.

An object holds no state of its own: what the threads of a process know together about it is the client's (``local``),
found by the path. So objects of one name are one object, a forked child begins with nothing held, and a pickle is a
name.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from distsync._client import contender_info, lifecycle
from distsync._client import default_client as default
from distsync._client.contender_info import Contender
from distsync._client.deadlines import read_timeout
from distsync._client.naming import inference
from distsync._client.naming.paths import check_path
from distsync._pickle import at_home
from distsync._protocols.delete_tree import remove_tree
from distsync._protocols.receipts import Receipts
from distsync.errors import DistsyncError, LockLostError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client

CoreT = TypeVar("CoreT")


class _ThreadToken(threading.local):
    """A token for the running thread. Unlike its identifier it is never used again for another one."""

    def __init__(self) -> None:
        self.token = object()


this_thread = _ThreadToken()


def current_owner() -> object:
    """The running thread, as the owner of what it holds."""
    return this_thread.token


def _check_client(client: object) -> None:
    from distsync._client.client import Client  # with kazoo, so not before somebody has a client

    if not isinstance(client, Client):
        raise TypeError(f"client must be a distsync Client, not {type(client).__name__}")


def _checked_acl(acl: Sequence[Any]) -> tuple[Any, ...]:
    from distsync._client.settings import check_acl  # not before somebody has one

    return check_acl(acl)


class SharedObject:
    """An object that everyone who knows its name shares."""

    #: The folder of the namespace that such objects are in.
    _kind: ClassVar[str]
    _acl: tuple[Any, ...] | None = None
    #: Whether it is of some use where nobody else finds it.
    _serves_alone: ClassVar[bool] = False
    #: What is named by the place where it is made, if not this object itself.
    _face: object = None

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
        resolved = (
            inference.Name(path, False)
            if path is not None
            else inference.resolve(self._face or self, name, warn_if_unnamed=not self._serves_alone)
        )
        self._name, self._fresh = resolved
        self._maker, self._forks, self._travelled = os.getpid(), lifecycle.fork_count(), False
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._entry: Any = None
        if self._fresh:
            lifecycle.register_before_fork(self)

    @property
    def name(self) -> str:
        """The name that others find this object by."""
        return self._name

    @property
    def client(self) -> Client:
        """The client that this object uses: the one it was given, else the default one."""
        return self._explicit_client or default.default_client()

    @property
    def path(self) -> str:
        """The znode of this object."""
        return self._explicit_path or self.client.path(self._kind, self._name)

    def _shared_state(self, make: Callable[[str], CoreT]) -> CoreT:
        """What the threads of this process know together about this object."""
        client, path = self.client, self.path
        if self._acl is not None:
            client.protect(path, self._acl)
        return client.local(path, partial(self._create_state, client, path, make), self._kind, self)

    def _create_state(self, client: Client, path: str, make: Callable[[str], CoreT]) -> CoreT:
        if self._fresh and self._maker == os.getpid():
            client.at_close(path, partial(remove_tree, path))
            if not self._travelled:
                self._finalizer = weakref.finalize(self, forget_unnamed, client, path, self._forks)
                self._finalizer.atexit = False
        return make(path)

    def mark_shared(self) -> None:
        """Before a fork, and where it is pickled: what others make of it goes when the client that made it closes."""
        if self._fresh and self._maker == os.getpid() and self._entry is None:
            with suppress(DistsyncError):
                self.client.at_close(self.path, partial(remove_tree, self.path))

    @property
    def _receipts(self) -> Receipts:
        client = self.client
        directory = f"{client.namespace.rstrip('/')}/receipts"
        return client.local(directory, partial(Receipts, directory))

    def _run(self, protocol: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
        return self.client.run(protocol, timeout, self)

    def _read(self, protocol: Coroutine[Any, Any, Any]) -> Any:
        """What the protocol sees, which changes nothing. Raises DeadlineError where a predicate has no more time."""
        return self._run(protocol, read_timeout())

    def _first_of(self, names: tuple[str, ...]) -> str | None:
        """Of the children of a znode the one that has what others wait for; None: nobody, or it cannot be said."""
        return None

    def _arguments(self) -> tuple[Any, ...]:
        """What the constructor gets, but for the name, where a pickle of this object arrives."""
        return ()

    def _options(self) -> dict[str, Any]:
        """The same, for what is given by keyword."""
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        self._travelled = True
        if self._finalizer is not None:
            self._finalizer.detach()  # others know it now: it goes when the client that made it closes
        self.mark_shared()
        path = self._explicit_path
        origin = None if self._explicit_client is None else self._explicit_client.origin
        options = self._options() if self._acl is None else {**self._options(), "acl": self._acl}
        return shared_object, (type(self), self._arguments(), None if path else self._name, path, origin, options)


def forget_unnamed(client: Client, path: str, forks: int) -> None:
    """An object without a name is gone, and what it was made of goes, unless a forked child knows it too."""
    if lifecycle.fork_count() == forks:
        client.discard(path, partial(remove_tree, path))


@at_home
def shared_object(
    kind: type[Any],
    arguments: tuple[Any, ...],
    name: str | None,
    path: str | None,
    origin: Any,
    options: dict[str, Any],
) -> Any:
    """Return the object of this name, in the process where its pickle arrived."""
    client = None if origin is None else default.client_of(origin)
    return kind(*arguments, name=name, path=path, client=client, **options)


def type_name(obj: object) -> str:
    """Return the module and name of the class of ``obj``, for its repr."""
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


def exit_context(release: Callable[[], None], error: BaseException | None) -> None:
    """The end of a ``with``: what the body raised comes first, a loss is added to it as a note."""
    try:
        release()
    except (LockLostError, NotHeldError) as lost:
        if error is None:
            raise
        if hasattr(error, "add_note"):
            error.add_note(f"distsync: {lost}")


def parse_contenders(found: list[Any]) -> list[Contender]:
    """Who they are, as their znodes say."""
    return [contender_info.read(node.data, path, node.stat.czxid) for path, node in found]


class FencingToken(int):
    """A number that grows from holder to holder: the zxid of the znode that holds.

    ``epoch`` and ``counter`` are the halves of a ZooKeeper transaction id. A resource that remembers the greatest
    token it has seen, and refuses a smaller one, is safe from a holder that does not know yet that it is none.
    """

    __module__ = "distsync.recipes"

    @property
    def epoch(self) -> int:
        """The leader's term in which the ensemble granted this: the upper 32 bits."""
        return self >> 32

    @property
    def counter(self) -> int:
        """The number of the transaction within that term: the lower 32 bits."""
        return self & 0xFFFFFFFF
