"""A request that no server takes is refused at once, and the connection stands."""

from __future__ import annotations

from typing import Any

import pytest

from distsync.errors import PayloadTooLargeError, RequestError
from distsync.session.client import Client
from distsync.session.steps import Create
from distsync.threading import Lock, Semaphore


def test_transaction_over_the_limit_is_refused_and_nothing_is_done(client: Client) -> None:
    with (lock := Lock(name="guard")):
        transaction = lock.transaction()
        transaction.create(f"{client.namespace}/big", b"x" * 2_000_000)
        with pytest.raises(PayloadTooLargeError, match=r"2\d{6} bytes, the limit is 1048575"):
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
def test_wrong_argument_is_refused_at_the_call(client: Client, operation: str, arguments: tuple[Any, ...]) -> None:
    with (lock := Lock(name="typed")):
        transaction = lock.transaction()
        with pytest.raises((TypeError, ValueError)):
            getattr(transaction, operation)(*arguments)


def test_request_that_cannot_be_written_ends_neither_connection_nor_session(client: Client) -> None:
    async def create() -> None:
        await Create(f"{client.namespace}/a", "text")  # type: ignore[arg-type]

    with (lock := Lock(name="kept")):
        with pytest.raises(RequestError, match="bytes"):
            client.run(create())
        assert lock.held
