"""Many watches, nodes and operations, at a small size: ``make scale`` measures the same at full size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from helpers.frame_client import linked
from helpers.server_load import Crowd, busy, grow, many_files, resident_bytes
from helpers.servers import EmbeddedProcess

from distsync._wire import records as r

NODE_BYTES = 700


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedProcess]:
    server = EmbeddedProcess(tmp_path)
    server.start()
    yield server
    server.kill()


def test_one_write_fires_the_watches_on_its_node_and_no_others(embedded: EmbeddedProcess) -> None:
    with many_files(), closing(Crowd(embedded.port, clients=200, each=50, nodes=400)) as crowd:
        crowd.arm()
        assert embedded.figures()["zk_watch_count"] == "10000"
        for number in (0, 200, 399):
            assert crowd.told(number) == crowd.watchers(number)
            assert crowd.told(number) == []


def test_node_costs_little_memory_and_survives_a_restart(embedded: EmbeddedProcess) -> None:
    assert grow(embedded, 20_000, bytes(100)) < NODE_BYTES
    embedded.restart()
    assert embedded.figures()["zk_znode_count"] == "20004"
    with linked(embedded.port) as link:
        assert len(link.ask(1, r.GetChildrenRequest("/top-7"), r.GetChildrenReply)[3].children) == 999  # type: ignore[attr-defined]


def test_memory_does_not_grow_with_operations(embedded: EmbeddedProcess) -> None:
    busy(embedded, 10_000)
    before = resident_bytes(embedded.pid)
    busy(embedded, 20_000, first=10_000)
    assert resident_bytes(embedded.pid) - before < 5_000_000
    assert embedded.figures()["zk_watch_count"] == "0"
    assert embedded.figures()["zk_znode_count"] == "4"
