"""Objects without a name: they live as long as any process uses them, or a pickle of them is in a queue.

A process is a member of the generation of the objects' creator while it uses one of them. Each
Python object has a reference, which copies in the same process share. When it is collected, a record
of it is written in the background, and with the last one the object is deleted.

A reference is kept, and the object with it until its generation ends, if other references cannot be
counted: if the process forked, or the object was pickled otherwise than by a `put` of a queue from which
`get` removes the item.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._client import lifecycle
from distsync._client.naming.paths import encode_name, process_objects_path
from distsync._client.process_identity import identity_of, is_dead, is_local
from distsync._protocols.retries import remove_tree
from distsync._protocols.state import module_generation
from distsync._protocols.state.process_objects import ProcessObjects
from distsync._protocols.state.reference_ledger import CREATOR_DROPPED, FOLDER, ISSUED, TAKEN, drop_reference

if TYPE_CHECKING:
    from distsync._client.client import Client

#: How many tokens a reference issues. One that is put into more queues is kept.
MAX_ISSUED = 32


class _Uses:
    """What the references of a Python object and its copies in the same process have in common.

    It does not refer to the object.
    """

    def __init__(self, client: Client, creator: str, name: str, path: str, is_creator: bool, token: str | None) -> None:
        self.client, self.creator, self.name, self.path = client, creator, name, path
        self.is_creator, self.token = is_creator, token
        self.is_kept = not is_creator and token is None
        #: Whether the object has been used by these references, so that there is something to end.
        self.is_confirmed = False
        self.issued: list[str] = []
        self.pid, self.forks = os.getpid(), lifecycle.fork_count()

    def end(self) -> None:
        """Note that the last Python object was collected. It never waits."""
        if not self.is_confirmed or self.pid != os.getpid():
            return
        is_kept = self.is_kept or self.forks != lifecycle.fork_count()
        if self.is_creator and not self.issued and not is_kept:
            self.client.discard(self.path, partial(remove_tree, self.path))
        elif self.client.is_started and (not self.is_creator or not is_kept):
            self.client.background(self._drop(is_kept))

    async def _drop(self, is_kept: bool) -> None:
        folders = _folders(self.client)
        if not is_kept:
            await folders.generation(self.creator).join()  # it may have used no object yet
            record = [CREATOR_DROPPED] if self.is_creator else [f"{TAKEN}{self.token}"]
            record += [ISSUED + each for each in self.issued]
            ledger = f"{process_objects_path(self.client.namespace, self.creator)}/{FOLDER}/{encode_name(self.name)}"
            await drop_reference(ledger, self.path, record)
        await folders.remove_user(self.creator, self)


class Reference:
    """A reference of this process to an object without a name. Copies of the Python object share it."""

    __slots__ = ("__weakref__", "_successors", "uses")

    def __init__(
        self, client: Client, creator: str, name: str, path: str, is_creator: bool, token: str | None = None
    ) -> None:
        self.uses = _Uses(client, creator, name, path, is_creator, token)
        self._successors: list[Reference] = []
        weakref.finalize(self, self.uses.end).atexit = False

    def is_of(self, client: Client) -> bool:
        """Return whether it is this process's, and one of this client."""
        return self.uses.pid == os.getpid() and self.uses.client is client

    def confirm(self) -> None:
        """Note that it is the reference that this process uses, of those that were made at the same time."""
        self.uses.is_confirmed = True

    def disclaim(self) -> None:
        """Let the end of this reference change nothing, because the pickle that it came from is put back."""
        self.uses.is_confirmed = False

    def succeeded_by(self, made: Reference) -> Reference:
        """Return the reference that is used instead of this one from now on: ``made``, or one that was made before."""
        if self.uses.is_kept or self.uses.issued:  # other processes may have references that go back to this one
            made.keep()
        self._successors.append(made)
        self.keep()
        return self._successors[0]

    def keep(self) -> None:
        """Keep the object until its generation ends."""
        self.uses.is_kept = True

    def issue(self) -> str | None:
        """Return a token for a pickle in a queue; None if the object is kept."""
        uses = self.uses
        if uses.is_kept or len(uses.issued) >= MAX_ISSUED:
            uses.is_kept = True
            return None
        uses.issued.append(os.urandom(6).hex())
        return uses.issued[-1]

    def begin_use(self) -> None:
        """Keep the membership in the generation for as long as this reference exists."""
        uses = self.uses
        folders = _folders(uses.client)
        if uses.creator != folders.process:
            folders.add_user(uses.creator, uses)


def as_user(client: Client, creator: str, blocks: bool, protocol: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
    """Return a protocol that joins the generation of a process's objects first, unless this one is a member.

    The membership ends a while after the last reference was dropped, or when the client is closed. In its
    own generation, this process stays a member. ``blocks`` says whether the calling thread does nothing else until
    the protocol has ended.
    """
    core = _folders(client).generation(creator)
    is_member = core.session_id is not None and core.session_id == client.session_id
    return protocol if is_member else module_generation.as_member(core, protocol, blocks and client.is_in_call())


#: The process in which an object of this client was shared before its first use.
_shared_in: weakref.WeakKeyDictionary[Client, int] = weakref.WeakKeyDictionary()


def share_unused(client: Client) -> None:
    """Let the client delete what other processes have made of objects that this process has not used."""
    _shared_in[client] = os.getpid()
    if client.is_started:
        _folders(client)
    else:
        path = _path(client)
        client.at_close(path, partial(_leave, client, _new_folders(path)))


async def _leave(client: Client, folders: ProcessObjects) -> None:
    await folders.leave(_shared_in.get(client) == os.getpid())


def _path(client: Client) -> str:
    return f"{client.namespace}/process"


#: Those of all clients that are left when the client is closed.
_ending: weakref.WeakSet[ProcessObjects] = weakref.WeakSet()


def _folders(client: Client) -> ProcessObjects:
    path = _path(client)
    folders = client.local(path, partial(_new_folders, path))
    if folders not in _ending:  # not in _new_folders: a signal handler in there may make those that are used
        client.at_close(path, partial(_leave, client, folders))
        client.at_session(folders.rejoin)
        client.background(folders.sweep())
        _ending.add(folders)
    return folders


def _new_folders(path: str) -> ProcessObjects:
    return ProcessObjects(path, identity_of(os.getpid()), is_dead, is_local)
