"""The fixture ``client``: a default client of the test's own, in a namespace of its own; what it leaves is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from helpers.leak_census import Census, Observer, nothing_more
from helpers.servers import ServerProcess

from distsync._client import default_client as default
from distsync._protocols.steps import Children, Create, Delete


async def born(path: str, ephemeral: bool = True) -> str:
    """A znode is there; answers its path."""
    return (await Create(path, ephemeral=ephemeral)).path


async def names(path: str) -> tuple[str, ...]:
    return (await Children(path)).names


async def gone(path: str) -> None:
    await Delete(path)


def test_client_is_the_default_one_and_uses_the_namespace(client: Any, namespace: str) -> None:
    assert default.default_client() is client
    assert client.namespace == namespace


def test_further_client_has_a_session_of_its_own(client: Any, make_client: Callable[..., Any], namespace: str) -> None:
    other = make_client()
    client.run(born(namespace, ephemeral=False))
    made = client.run(born(f"{namespace}/seen"))
    assert other.run(names(namespace)) == ("seen",)
    assert other.session_id != client.session_id
    client.run(gone(made))


def test_closed_client_leaves_no_thread_socket_session_or_ephemeral(
    make_client: Callable[..., Any], server: ServerProcess, namespace: str, observer: Observer
) -> None:
    before = Census.take(server)
    client = make_client()
    client.run(born(namespace, ephemeral=False))
    client.run(born(f"{namespace}/held"))
    assert observer.ephemerals(namespace) == [f"{namespace}/held"]
    assert Census.take(server).more_than(before)
    client.close()
    assert nothing_more(lambda: Census.take(server).more_than(before)) == []
    assert observer.ephemerals(namespace) == []
