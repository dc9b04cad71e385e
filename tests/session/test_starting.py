"""A client that is closed while its connection is being started, in whatever line of that."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from servers import ServerProcess
from timing import eventually

from distsync.session import link as links
from distsync.session.connection import Handler, Kazoo, kazoo_options
from distsync.session.holds import Holds
from distsync.session.lease import LeaseClock
from distsync.session.link import Link
from distsync.session.requests import Translator
from distsync.session.settings import Settings


@pytest.fixture
def link() -> Link:
    lease = LeaseClock()
    options = kazoo_options(Settings())
    return Link(options, Translator(None, ()), lease, Holds(lease, lambda lost: None), lambda state: None)


def closed_within(link: Link, method: str, kind: type[Any], monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    """The link is closed by another thread before, or right ``after``, this method does its work."""
    method_itself = getattr(kind, method)

    def meanwhile(*args: Any, **options: Any) -> Any:
        result = method_itself(*args, **options) if after else None
        closing = threading.Thread(target=link.close, args=(0.5,))
        closing.start()
        closing.join()
        return result if after else method_itself(*args, **options)

    monkeypatch.setattr(kind, method, meanwhile)


def test_link_that_is_closed_before_its_thread_runs_has_no_thread(
    link: Link, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed_within(link, "start_async", Kazoo, monkeypatch, after=False)
    link.start(server.hosts, ())
    eventually(lambda: not any("zk_loop" in thread.name for thread in threading.enumerate()))
    assert link.state is links.State.CLOSED


def test_link_that_is_closed_before_its_start_returns_has_no_thread(
    link: Link, server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed_within(link, "spawn", Handler, monkeypatch, after=True)
    link.start(server.hosts, ())
    eventually(lambda: not any("zk_loop" in thread.name for thread in threading.enumerate()))
    assert link.state is links.State.CLOSED
