"""The wires between servers, without servers."""

from __future__ import annotations

import gc
import socket
from contextlib import ExitStack

import pytest

from distsync.testing.ensemble_network import EnsembleNetwork

ROUNDS, CALLS = 3, 8


@pytest.mark.slow("an ensemble")
def test_closed_while_connections_come_they_leave_no_socket() -> None:
    """One that was left would warn as it is collected, which is an error here."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4 * ROUNDS * CALLS))
        port = server.getsockname()[1]
        for _ in range(ROUNDS):
            wires = EnsembleNetwork()
            pair = wires.lay((1, 2), port, port, lambda: port)
            for target in (*pair, *pair) * (CALLS // 4):
                stack.enter_context(socket.create_connection(("127.0.0.1", target)))
            wires.close()
            del wires
            gc.collect()
