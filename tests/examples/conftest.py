"""Shells to start programs in.

``shells``      on the test's server, in its namespace
``own_shells``  on a server of the test alone
``home``        without any configuration: a user's folders, in which the embedded server starts by itself
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.servers import ServerProcess
from helpers.subprocesses import Home, Shells


@pytest.fixture
def shells(server: ServerProcess, namespace: str, tmp_path: Path) -> Iterator[Shells]:
    made = Shells(tmp_path, {"DISTSYNC_HOSTS": server.hosts, "DISTSYNC_NAMESPACE": namespace})
    yield made
    made.close()


@pytest.fixture
def own_shells(own_server: ServerProcess, tmp_path: Path) -> Iterator[Shells]:
    """Programs on a server of this test alone."""
    made = Shells(tmp_path, {"DISTSYNC_HOSTS": own_server.hosts})
    yield made
    made.close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.close()
