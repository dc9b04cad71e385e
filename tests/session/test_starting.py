"""A client that is closed while its connection is being started, in whatever line of that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from peers import Running, results
from servers import ServerProcess
from timing import UNIT, eventually

from distsync.session.access import Access
from distsync.session.connection import Handler, Kazoo, kazoo_options
from distsync.session.holds import Holds
from distsync.session.lease import LeaseClock
from distsync.session.link import Link
from distsync.session.requests import Translator
from distsync.session.settings import Settings
from distsync.session.state import State


@pytest.fixture
def link() -> Link:
    lease = LeaseClock()
    options = kazoo_options(Settings())
    return Link(options, Translator(Access()), lease, Holds(lease, lambda lost: None), lambda: None)


@contextmanager
def closed_within(link: Link, kind: type[Any], method: str) -> Iterator[None]:
    """Another thread begins to close the link right before this method does its work, and right after it."""
    method_itself, closing = getattr(kind, method), []

    def close() -> None:
        closing.append(Running(link.close, 0.5))
        closing[-1].join(4 * UNIT)

    def meanwhile(*args: Any, **options: Any) -> Any:
        close()
        result = method_itself(*args, **options)
        close()
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, method, meanwhile)
        yield
    assert closing
    results(closing)


@pytest.mark.parametrize(("kind", "method"), [(Kazoo, "start_async"), (Handler, "spawn")])
def test_link_that_is_closed_while_it_starts_keeps_no_thread(
    link: Link, server: ServerProcess, kind: type[Any], method: str
) -> None:
    with closed_within(link, kind, method):
        link.start(server.hosts, ())
    eventually(lambda: not any("zk_loop" in thread.name for thread in threading.enumerate()))
    assert link.state is State.CLOSED
