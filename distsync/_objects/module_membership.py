"""Generations of modules, of which this process is a member while it uses objects that are bound there."""

from __future__ import annotations

import os
import weakref
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._client.default_client import default_client
from distsync._client.naming import inference
from distsync._client.naming.inference import Module
from distsync._client.naming.paths import module_path
from distsync._client.process_identity import identity_of, is_dead
from distsync._protocols.state import module_generation
from distsync._protocols.state.module_generation import GenerationCore
from distsync.errors import DistsyncError

if TYPE_CHECKING:
    from distsync._client.client import Client


#: Memberships that end when their client is closed.
_ending: weakref.WeakSet[GenerationCore] = weakref.WeakSet()


def as_member(
    client: Client, module: Module, blocks: bool, protocol: Coroutine[Any, Any, Any]
) -> Coroutine[Any, Any, Any]:
    """Return a protocol that joins the generation of a module first, unless this process is a member.

    The membership ends when the client is closed. ``blocks`` says whether the calling thread does nothing else until
    the protocol has ended.
    """
    core = _generation(client, module)
    if _is_member(core, client):
        return protocol
    return module_generation.as_member(core, protocol, blocks and client.is_in_call())


def join_all() -> None:
    """Join the generations of all modules in which this process has bound objects, before a child is started.

    A child that uses such an object and exits is then not the last member. If no server can be
    reached, the child will report it.
    """
    for module, given_client in tuple(inference.bound_modules):
        with suppress(DistsyncError):
            client = given_client or default_client()
            core = _generation(client, module)
            if not _is_member(core, client):
                client.run(core.join(client.is_in_call()), client.settings.connect_timeout)


def _generation(client: Client, module: Module) -> GenerationCore:
    path = module_path(client.namespace, module.key(client.hosts is None))
    core = client.local(path, partial(GenerationCore, path, identity_of(os.getpid()), is_dead))
    if core not in _ending:  # not in its factory: a signal handler in there may make the one that is used
        client.at_close(path, core.leave)
        client.at_session(core.rejoin)
        _ending.add(core)
    return core


def _is_member(core: GenerationCore, client: Client) -> bool:
    return core.session_id is not None and core.session_id == client.session_id
