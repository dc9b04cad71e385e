"""A server that comes back with older data than its clients have seen: hazard of a restore, or of a wiped disk."""

from __future__ import annotations

import shutil

import pytest
from helpers.sample_protocols import ask
from helpers.servers import ServerProcess
from helpers.timing import PATIENCE, eventually

from distsync._client.client import Client
from distsync._protocols.steps import Connected, Create, Exists, Hold, Loss, Wait, WakeReason


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
