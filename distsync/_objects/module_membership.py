"""Generations of modules, of which this process is a member while it uses objects that are bound there."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._client.naming.inference import Module
from distsync._client.naming.paths import module_path
from distsync._client.process_identity import identity_of, is_dead
from distsync._protocols.state import module_generation
from distsync._protocols.state.module_generation import GenerationCore

if TYPE_CHECKING:
    from distsync._client.client import Client


def as_member(client: Client, module: Module, protocol: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
    """Return a protocol that joins the generation of a module first, unless this process is a member.

    The membership ends when the client is closed.
    """
    path = module_path(client.namespace, module.key(client.hosts is None))
    core = client.local(path, partial(_make, client, path))
    is_member = core.session_id is not None and core.session_id == client.session_id
    return protocol if is_member else module_generation.as_member(core, protocol)


def _make(client: Client, path: str) -> GenerationCore:
    core = GenerationCore(path, identity_of(os.getpid()), is_dead)
    client.at_close(path, core.leave)
    client.at_session(core.rejoin)
    return core
