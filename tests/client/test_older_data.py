"""A server that comes back with older data than its clients have seen: hazard of a restore, or of a wiped disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from helpers.sample_protocols import ask
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, eventually

from distsync._client.client import Client
from distsync._protocols.retries import ensure
from distsync._protocols.steps import Connected, Create, Delete, Exists, Hold, Loss, Wait, WakeReason
from distsync._wire.codes import OpCode
from distsync.errors import DisconnectedError
from distsync.testing.faulty_proxy import Proxy


async def stand(loss: Loss) -> None:
    session = await Connected()
    for number in range(20):
        await Create(f"/{number}")
    created = await Create("/mine", ephemeral=True)
    await Hold(created.path, session.session_id, loss)


@pytest.mark.slow
def test_client_starts_a_new_session_on_a_server_that_lost_its_data(own_server: ServerProcess) -> None:
    with Client(own_server.hosts, session_timeout=1.0) as client:
        loss = Loss()
        client.run(stand(loss))
        before = client.session_id
        own_server.kill()
        for entry in own_server.folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
        own_server.start()
        assert client.run(ask(Wait(loss, limit=PATIENCE))) is WakeReason.SIGNAL
        eventually(lambda: client.session_id not in (None, before))
        assert client.run(ask(Exists("/mine")), timeout=PATIENCE) is None


async def make(path: str) -> str:
    """Create a znode that the call does not delete if its reply is lost."""
    return (await Create(path, ephemeral=True, sequence=True, own_cleanup=True)).path


def test_znode_whose_create_lost_its_reply_does_not_end_the_session(
    proxied: Client, proxy: Proxy, namespace: str
) -> None:
    """It is unknown after the first lost connection, and known from then on."""
    proxied.run(ensure(namespace))
    proxied.run(make(f"{namespace}/known-"))
    session_id, own_nodes = proxied.session_id, proxied._runtime.zk_session.own_nodes
    proxy.drop_next_reply(OpCode.CREATE2)
    with pytest.raises(DisconnectedError):
        proxied.run(make(f"{namespace}/lost-"))
    for _ in range(3):
        eventually(lambda: proxied.state == "connected" and not own_nodes.is_due)
        names = sorted(path.rpartition("/")[2].partition("-")[0] for path in own_nodes._known)
        assert names == ["known", "lost"]
        before = proxy.connections
        proxy.cut()
        eventually(lambda before=before: proxy.connections > before)  # type: ignore[misc]
    assert proxied.session_id == session_id


def test_znodes_that_others_deleted_are_forgotten_when_there_are_many(
    client: Client, make_client: Callable[..., Client], namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distsync._client.transport.own_nodes.FEW", 5)
    other = make_client()
    client.run(ensure(namespace))
    own_nodes = client._runtime.zk_session.own_nodes
    own_nodes._most = 5
    for _ in range(100):
        other.run(ask(Delete(client.run(make(f"{namespace}/gone-")))))
    eventually(lambda: len(own_nodes._known) < 50)
