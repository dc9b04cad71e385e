"""Requests that no server accepts are refused at once, and the connection stays open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.custom_server import TunedProcess
from helpers.timing import PATIENCE

from distsync._client.client import Client
from distsync._protocols.steps import Create
from distsync.errors import PayloadTooLargeError, RequestError
from distsync.queue import Queue
from distsync.threading import Lock, Semaphore


def test_transaction_over_the_limit_is_refused_and_has_no_effect(client: Client) -> None:
    with (lock := Lock(name="guard")):
        transaction = lock.transaction()
        transaction.create(f"{client.namespace}/big", b"x" * 2_000_000)
        with pytest.raises(PayloadTooLargeError, match=r"2\d{6} bytes, which exceeds the limit of 1048575"):
            transaction.commit()
        assert lock.held
        assert client.state == "connected"


def test_more_permits_than_fit_a_request_are_refused_and_none_is_added(client: Client) -> None:
    given = Semaphore(0, name="many")
    with pytest.raises(PayloadTooLargeError):
        given.release(20_000)
    assert given.get_value() == 0


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("create", ("/a", "text")),
        ("create", ("a", b"")),
        ("set_data", ("/a", 3)),
        ("set_data", ("/a", b"", "1")),
        ("delete", (3,)),
        ("check", ("/a", None)),
    ],
)
def test_invalid_argument_of_an_operation_is_refused_at_the_call(
    client: Client, operation: str, arguments: tuple[Any, ...]
) -> None:
    with (lock := Lock(name="typed")):
        transaction = lock.transaction()
        with pytest.raises((TypeError, ValueError)):
            getattr(transaction, operation)(*arguments)


def test_exhausted_quota_raises_at_once_and_existing_items_can_be_removed(tmp_path: Path) -> None:
    server = TunedProcess(tmp_path, enforce_quota=True)
    server.start()
    try:
        with Client(server.hosts, session_timeout=4.0) as mine:
            queue, lock = Queue[int](name="q", client=mine), Lock(name="l", client=mine, linger=0)
            queue.put(1)
            mine.run(set_quota(mine.namespace, 5))
            for attempt in (lambda: queue.put(2), lock.acquire, Semaphore(2, name="s", client=mine).acquire):
                with pytest.raises(RequestError, match=r"QuotaExceeded \(-125\)"):
                    attempt()
            assert mine.state == "connected"
            assert queue.get(timeout=PATIENCE) == 1
    finally:
        server.kill()


async def set_quota(path: str, nodes: int) -> None:
    quota = f"/zookeeper/quota{path}"
    await Create(quota)
    await Create(f"{quota}/zookeeper_limits", f"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit={nodes}".encode())
    await Create(f"{quota}/zookeeper_stats")


def test_request_that_cannot_be_encoded_closes_neither_connection_nor_session(client: Client) -> None:
    async def create() -> None:
        await Create(f"{client.namespace}/a", "text")  # type: ignore[arg-type]

    with (lock := Lock(name="held")):
        with pytest.raises(RequestError, match="bytes"):
            client.run(create())
        assert lock.held
