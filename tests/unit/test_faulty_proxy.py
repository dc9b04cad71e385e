"""The proxy forwards frames that it cannot parse, and continues."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from helpers.frame_client import Link
from helpers.timing import PATIENCE

from distsync._wire import records as r
from distsync._wire.frames import framed
from distsync._wire.message_codec import encode_connect
from distsync.testing.faulty_proxy import LOOPBACK, Proxy

REFUSAL = bytes(16)
"""The head of a reply, and nothing else: how ZooKeeper's read-only server refuses a session that is not local."""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Return a proxy of a server that refuses all clients."""
    with socket.create_server((LOOPBACK, 0)) as listener:

        def refuse() -> None:
            for _ in range(2):
                link, _ = listener.accept()
                with link:
                    link.sendall(framed(REFUSAL))
                    link.recv(1000)

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        with Proxy(f"{LOOPBACK}:{listener.getsockname()[1]}") as proxy:
            yield proxy
        thread.join(PATIENCE)


def test_malformed_reply_to_a_handshake_is_forwarded(proxy: Proxy) -> None:
    for _ in range(2):
        link = Link(int(proxy.hosts.rpartition(":")[2]))
        link.send(encode_connect(r.ConnectRequest()))
        assert link.frame() == REFUSAL
        assert proxy.sessions() == []
        link.close()
