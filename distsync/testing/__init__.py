"""Servers with fault injection, for tests of programs that use distsync.

Each name is imported on its first use, because pytest imports this package in every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distsync._server.options import Tls as Tls
    from distsync._wire.codes import OpCode as OpCode
    from distsync.testing.embedded_server import Counts as Counts
    from distsync.testing.embedded_server import EmbeddedServer as EmbeddedServer
    from distsync.testing.ensemble import Ensemble as Ensemble
    from distsync.testing.ensemble_server import EnsembleServer as EnsembleServer
    from distsync.testing.faulty_proxy import Proxy as Proxy

_HOME_OF = {
    "EmbeddedServer": "distsync.testing.embedded_server",
    "Counts": "distsync.testing.embedded_server",
    "Ensemble": "distsync.testing.ensemble",
    "EnsembleServer": "distsync.testing.ensemble_server",
    "Proxy": "distsync.testing.faulty_proxy",
    "OpCode": "distsync._wire.codes",
    "Tls": "distsync._server.options",
}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    """Fetch a public name on first use."""
    from importlib import import_module

    if name not in _HOME_OF:
        raise AttributeError(f"module 'distsync.testing' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value
