"""TTL nodes and containers are deleted when their time has come, and not before."""

from __future__ import annotations

import pytest
from helpers.engine_harness import Bench, Client

from distsync._server.effects import Commit, Notify
from distsync._server.journal.change_records import MAX_TTL_MS
from distsync._wire import records as r
from distsync._wire.codes import CreateFlag, ErrorCode, EventType

INTERVAL_MS = 1_000


@pytest.fixture
def client() -> Client:
    bench = Bench(container_interval_ms=INTERVAL_MS, container_unused_ms=10 * INTERVAL_MS)
    return bench.client(timeout_ms=60_000)


def there(client: Client, path: str) -> bool:
    return path in client.bench.engine.tree.nodes


def create_ttl(client: Client, path: str, ttl: int) -> None:
    client.body(r.CreateTtlRequest(path, ttl=ttl))


class TestTimeToLive:
    def test_ttl_node_is_deleted_when_its_time_has_passed_without_a_change(self, client: Client) -> None:
        create_ttl(client, "/t", 1_500)
        client.bench.pass_time(1_500)
        assert there(client, "/t")
        client.bench.pass_time(INTERVAL_MS)
        assert not there(client, "/t")
        assert not client.bench.engine.tree.ttls

    def test_change_of_its_data_restarts_the_time(self, client: Client) -> None:
        create_ttl(client, "/t", 1_500)
        client.bench.pass_time(1_400)
        client.body(r.SetDataRequest("/t", b""))
        client.bench.pass_time(1_400)
        assert there(client, "/t")
        client.bench.pass_time(2 * INTERVAL_MS)
        assert not there(client, "/t")

    def test_ttl_node_with_children_is_not_deleted(self, client: Client) -> None:
        create_ttl(client, "/t", 100)
        client.create("/t/a")
        client.bench.pass_time(5 * INTERVAL_MS)
        assert there(client, "/t")
        client.body(r.DeleteRequest("/t/a"))
        client.bench.pass_time(INTERVAL_MS)
        assert not there(client, "/t")

    def test_deletion_of_a_ttl_node_fires_watches_and_is_committed(self, client: Client) -> None:
        create_ttl(client, "/t", 100)
        client.body(r.GetDataRequest("/t", True))
        effects = client.bench.pass_time(INTERVAL_MS)
        assert [type(effect) for effect in effects] == [Commit, Notify]
        assert client.events() == [(EventType.NODE_DELETED, "/t")]

    def test_ttl_node_outlives_its_session_and_has_no_owner(self, client: Client) -> None:
        create_ttl(client, "/t", 50_000)
        assert client.stat("/t").ephemeral_owner == 0
        client.send(r.CloseSessionRequest())
        assert there(client, "/t")

    def test_ttl_node_and_its_time_survive_a_restart(self, client: Client) -> None:
        create_ttl(client, "/t", 1_500)
        create_ttl(client, "/long", MAX_TTL_MS)
        again = Bench(container_interval_ms=INTERVAL_MS)
        for payload in client.bench.payloads():
            again.engine.replay(payload)
        assert set(again.engine.tree.ttls) == {"/t", "/long"}
        assert again.engine.tree.nodes["/long"].ttl_ms == MAX_TTL_MS
        again.engine.advance(again.now_ms)
        again.pass_time(5 * INTERVAL_MS)
        assert set(again.engine.tree.ttls) == {"/long"}

    def test_ttl_node_survives_a_snapshot(self, client: Client) -> None:
        create_ttl(client, "/t", 1_500)
        again = Bench()
        again.engine.restore(client.bench.engine.snapshot())
        assert again.engine.tree.nodes["/t"].ttl_ms == 1_500
        assert set(again.engine.tree.ttls) == {"/t"}

    def test_failed_multi_leaves_no_ttl_node(self, client: Client) -> None:
        client.ask(r.MultiRequest((r.CreateTtlRequest("/t", ttl=5), r.DeleteRequest("/none"))))
        assert not client.bench.engine.tree.ttls

    @pytest.mark.parametrize("flags", [CreateFlag.PERSISTENT, CreateFlag.EPHEMERAL, CreateFlag.CONTAINER, 7, -1])
    def test_create_ttl_needs_its_flags(self, client: Client, flags: int) -> None:
        for ttl in (-1, 5):
            request = r.CreateTtlRequest("/t", flags=flags, ttl=ttl)
            assert client.err(request) == ErrorCode.BAD_ARGUMENTS


class TestContainers:
    def test_unused_container_is_deleted_late(self, client: Client) -> None:
        client.body(r.CreateContainerRequest("/c"))
        client.bench.pass_time(9 * INTERVAL_MS)
        client.body(r.SetDataRequest("/c", b""))
        client.bench.pass_time(9 * INTERVAL_MS)
        assert there(client, "/c")
        client.bench.pass_time(2 * INTERVAL_MS)
        assert not there(client, "/c")

    def test_emptied_container_is_deleted_at_the_next_check(self, client: Client) -> None:
        client.body(r.CreateContainerRequest("/c"))
        client.create("/c/a")
        client.bench.pass_time(20 * INTERVAL_MS)
        client.body(r.DeleteRequest("/c/a"))
        assert there(client, "/c")
        client.bench.pass_time(INTERVAL_MS)
        assert not there(client, "/c")
