"""Quotas: the stats of a subtree, and enforcement of hard limits."""

from __future__ import annotations

import pytest
from helpers.engine_harness import Bench, Client
from hypothesis import given
from hypothesis import strategies as st

from distsync._server.quotas import apply_delta, stats_data, violations
from distsync._wire import records as r
from distsync._wire.codes import CreateFlag, ErrorCode

QUOTA = "/zookeeper/quota/q"
LIMITS, STATS = f"{QUOTA}/zookeeper_limits", f"{QUOTA}/zookeeper_stats"


def limited(bench: Bench, limits: bytes = b"count=5,bytes=10") -> Client:
    """Return a client; /q has a quota, and one byte."""
    client = bench.client()
    client.create("/q", b"1")
    client.create(QUOTA)
    client.create(LIMITS, limits)
    client.create(STATS)
    return client


def held_by(client: Client, stats: str = STATS) -> bytes:
    return bytes(client.body(r.GetDataRequest(stats)).data)


class TestCounting:
    def test_new_stats_node_has_the_current_usage(self) -> None:
        client = Bench().client()
        for path in ("/q", "/q/a", "/q/a/b", "/qq"):
            client.create(path, b"12")
        client.create(QUOTA)
        client.create(STATS, b"nonsense")
        assert held_by(client) == b"count=3,bytes=6"

    def test_stats_of_a_missing_path_are_zero(self) -> None:
        client = Bench().client()
        client.create(QUOTA)
        client.create(STATS)
        assert held_by(client) == b"count=0,bytes=0"

    def test_every_change_is_counted(self) -> None:
        client = limited(Bench())
        client.create("/q/a", b"123")
        client.create("/q/e", flags=CreateFlag.EPHEMERAL)
        client.create("/elsewhere", b"12345")
        client.body(r.SetDataRequest("/q/a", b"12345"))
        assert held_by(client) == b"count=3,bytes=6"
        client.body(r.DeleteRequest("/q/a"))
        client.send(r.CloseSessionRequest())
        assert held_by(client.bench.client()) == b"count=1,bytes=1"

    def test_only_the_lowest_quota_counts(self) -> None:
        client = limited(Bench())
        client.create("/q/a")
        client.create(f"{QUOTA}/a")
        for name in ("zookeeper_limits", "zookeeper_stats"):
            client.create(f"{QUOTA}/a/{name}")
        client.create("/q/a/b", b"12")
        assert held_by(client) == b"count=2,bytes=1"
        assert held_by(client, f"{QUOTA}/a/zookeeper_stats") == b"count=2,bytes=2"

    def test_a_failed_multi_is_not_counted(self) -> None:
        client = limited(Bench())
        changes = (r.CreateRequest("/q/a", b"123"), r.SetDataRequest("/q", b""), r.DeleteRequest("/q/a"))
        client.ask(r.MultiRequest((*changes, r.DeleteRequest("/none"))))
        assert held_by(client) == b"count=1,bytes=1"

    def test_a_failed_multi_takes_back_the_quota_itself(self) -> None:
        client = limited(Bench())
        for change in (r.DeleteRequest(LIMITS), r.DeleteRequest(STATS)):
            client.ask(r.MultiRequest((change, r.CreateRequest("/q/a"), r.DeleteRequest("/none"))))
        assert held_by(client) == b"count=1,bytes=1"
        client.create("/q/a")
        assert held_by(client) == b"count=2,bytes=1"

    def test_quota_survives_a_restart(self) -> None:
        bench = Bench()
        client = limited(bench)
        client.create("/q/a", b"12")
        again = Bench()
        again.engine.restore(bench.engine.snapshot())
        other = again.client(last_zxid_seen=0)
        other.create("/q/b", b"3")
        assert held_by(other) == b"count=3,bytes=4"

    @pytest.mark.parametrize("path", ["/zookeeper/quota/zookeeper_limits", "/zookeeper/quota/zookeeper_stats"])
    def test_root_has_no_quota(self, path: str) -> None:
        client = Bench().client()
        client.create(path, b"count=0,bytes=0")
        client.create("/a")
        assert client.body(r.GetDataRequest(path)).data == b"count=0,bytes=0"


class TestEnforcement:
    LIMITS = b"count=-1,bytes=-1=;byteHardLimit=5;countHardLimit=3"

    @pytest.fixture
    def client(self) -> Client:
        return limited(Bench(enforce_quota=True), self.LIMITS)

    def test_more_nodes_than_allowed_are_refused(self, client: Client) -> None:
        client.create("/q/a")
        client.create("/q/b")
        assert client.err(r.CreateRequest("/q/c")) == ErrorCode.QUOTA_EXCEEDED
        assert client.err(r.CreateRequest("/q/b")) == ErrorCode.NODE_EXISTS
        client.body(r.DeleteRequest("/q/a"))
        client.create("/q/c")

    def test_more_bytes_than_allowed_are_refused(self, client: Client) -> None:
        assert client.err(r.CreateRequest("/q/a", b"12345")) == ErrorCode.QUOTA_EXCEEDED
        assert client.err(r.SetDataRequest("/q", b"123456", 77)) == ErrorCode.QUOTA_EXCEEDED
        assert client.err(r.SetDataRequest("/q", b"12345")) == 0
        assert client.err(r.SetDataRequest("/q", b"54321")) == 0

    def test_soft_limits_are_advice(self) -> None:
        client = limited(Bench(enforce_quota=True), b"count=1,bytes=1")
        client.create("/q/a", b"12345")

    def test_quota_is_not_enforced_by_default(self) -> None:
        client = limited(Bench(), self.LIMITS)
        client.create("/q/a", b"12345678")

    def test_node_with_a_similar_name_sets_no_limits(self, client: Client) -> None:
        """Neither when it is created, nor when that is rolled back."""
        other = f"{QUOTA}/xzookeeper_limits"
        client.ask(r.MultiRequest((r.CreateRequest(other), r.CheckVersionRequest("/none"))))
        client.create(other)
        client.body(r.DeleteRequest(other))
        assert client.err(r.CreateRequest("/q/a", b"12345")) == ErrorCode.QUOTA_EXCEEDED

    def test_a_quota_without_stats_limits_nothing(self, client: Client) -> None:
        client.body(r.DeleteRequest(STATS))
        client.create("/q/a", b"12345678")


class TestText:
    @given(st.integers(0, 9), st.integers(0, 99), st.integers(-9, 9), st.integers(-99, 99))
    def test_formatted_quota_is_parsed(self, count: int, size: int, more: int, bytes_more: int) -> None:
        assert apply_delta(stats_data(count, size), more, bytes_more) == stats_data(count + more, size + bytes_more)

    @given(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=30))
    def test_malformed_quota_limits_nothing(self, limits: bytes | None, stats: bytes | None) -> None:
        apply_delta(stats, 1, 1)
        assert not list(violations(limits, stats, 1, 1))

    def test_other_fields_are_kept(self) -> None:
        assert apply_delta(b"z=1;count=2,bytes=3=;a=4", 1, 1) == b"count=3,bytes=4=;a=4;z=1"

    @pytest.mark.parametrize(
        ("limits", "told"),
        [
            (b"count=2,bytes=9", [("current count=3, softCountLimit=2", False)]),
            (b"count=1,bytes=9=;countHardLimit=3", []),
            (b"count=9,bytes=4=;countHardLimit=2", [
                ("current count=3, hardCountLimit=2", True), ("current bytes=5, softByteLimit=4", False)]),
            (b"byteHardLimit=4", [("current bytes=5, hardByteLimit=4", True)]),
            (b"count=-1,bytes=-1", []),
        ],
    )  # fmt: skip
    def test_soft_limit_is_returned_without_a_hard_one(self, limits: bytes, told: list[tuple[str, bool]]) -> None:
        assert list(violations(limits, b"count=2,bytes=3", 1, 2)) == told
