"""Sessions: opening, reattaching, expiry and closing; and deletion of containers."""

from __future__ import annotations

import pytest
from helpers.engine_harness import NOW_MS, TICK_MS, Bench, Client
from hypothesis import example, given
from hypothesis import strategies as st

from distsync._server.effects import Accepted, Commit, Drop, Notify, Reply
from distsync._server.engine import Engine
from distsync._server.engine_config import EngineConfig
from distsync._server.session_clock import PauseTolerantClock, SteadyClock
from distsync._wire import records as r
from distsync._wire.codes import CreateFlag, ErrorCode, EventType

MS = 1_000_000
EPHEMERAL = CreateFlag.EPHEMERAL
REFUSED = r.ConnectResponse(0, 0, 0, bytes(16), None)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def client(bench: Bench) -> Client:
    return bench.client()


class TestOpening:
    """M-2."""

    @pytest.mark.parametrize(("asked", "given"), [(0, 1000), (-5, 1000), (7000, 7000), (10**9, 60_000)])
    def test_timeout_is_limited_to_the_allowed_range(self, bench: Bench, asked: int, given: int) -> None:
        client = bench.client(timeout_ms=asked)
        assert client.response is not None
        assert client.response.timeout_ms == given == bench.engine.sessions[client.session_id].timeout_ms

    def test_the_commit_comes_first(self, bench: Bench) -> None:
        effects = bench.engine.connect(1, r.ConnectRequest(), NOW_MS)
        assert [type(effect) for effect in effects] == [Commit, Accepted]

    def test_passwords_have_16_bytes_and_differ(self, bench: Bench) -> None:
        passwords = {client.response.password for client in (bench.client(), bench.client()) if client.response}
        assert [len(password or b"") for password in passwords] == [16, 16]

    def test_session_ids_are_never_reused_even_after_data_loss(self) -> None:
        first, second = Bench(), Bench()
        second.now_ms += 1
        ids = [bench.client().session_id for bench in (first, first, second, second)]
        assert len(set(ids)) == 4
        assert all(0 < id < 2**63 for id in ids)

    @pytest.mark.parametrize("server_id", [0, 1, 127])
    def test_session_ids_contain_the_server(self, server_id: int) -> None:
        assert Bench(server_id=server_id).client().session_id >> 56 == server_id

    def test_client_with_a_later_zxid_is_dropped_without_a_reply(self, bench: Bench) -> None:
        assert bench.engine.connect(1, r.ConnectRequest(last_zxid_seen=10**6), NOW_MS) == [Drop(1)]

    @pytest.mark.parametrize(("sent", "answered"), [(None, None), (False, False), (True, False)])
    def test_the_read_only_byte_is_answered_if_the_client_sent_it(
        self, bench: Bench, sent: bool | None, answered: bool | None
    ) -> None:
        """M-1."""
        response = bench.client(read_only=sent).response
        assert response is not None
        assert response.read_only is answered

    def test_a_second_handshake_on_a_connection_ends_it(self, client: Client) -> None:
        assert client.bench.engine.connect(client.peer, r.ConnectRequest(), NOW_MS) == [Drop(client.peer)]


class TestAttachingAgain:
    """M-3."""

    def test_reattached_session_has_its_nodes(self, client: Client) -> None:
        client.create("/a", flags=EPHEMERAL)
        client.disconnect()
        again = client.again()
        assert again.response == client.response
        assert again.stat("/a").ephemeral_owner == client.session_id

    def test_previous_connection_of_the_session_is_dropped_first(self, client: Client) -> None:
        again = client.again()
        assert client.bench.log[-2:] == [Drop(client.peer), Accepted(again.peer, again.response)]  # type: ignore[arg-type]
        assert client.send(r.PingRequest()) == [Drop(client.peer)]
        client.disconnect()
        assert again.err(r.PingRequest()) == 0

    def test_timeout_may_change_on_reattaching(self, client: Client) -> None:
        again = client.again(timeout_ms=20_000)
        assert client.bench.engine.sessions[again.session_id].timeout_ms == 20_000

    @pytest.mark.parametrize("change", [{"password": bytes(16)}, {"password": None}, {"session_id": 12345}])
    def test_a_wrong_password_or_an_unknown_session_is_refused(self, client: Client, change: dict[str, object]) -> None:
        again = client.again(**change)
        assert again.response == REFUSED
        assert again.dropped
        assert client.err(r.PingRequest()) == 0

    def test_an_expired_session_is_refused(self, client: Client) -> None:
        client.bench.engine.expire(client.session_id, NOW_MS)
        assert client.again().response == REFUSED

    def test_passwords_of_another_secret_are_refused(self, client: Client) -> None:
        other = Bench(secret=b"another")
        for payload in client.bench.payloads():
            other.engine.replay(payload)
        assert client.response is not None
        assert other.client(session_id=client.session_id, password=client.response.password).response == REFUSED


class TestExpiry:
    """M-6."""

    def test_session_expires_between_its_timeout_and_one_tick_later(self, client: Client) -> None:
        client.disconnect()
        assert client.bench.pass_time(10_000) == []
        assert client.session_id in client.bench.engine.sessions
        client.bench.pass_time(TICK_MS)
        assert client.session_id not in client.bench.engine.sessions

    def test_session_expires_at_most_100_ms_after_its_timeout(self) -> None:
        for so_late in (0, 1, 99, 250, 499):
            bench = Bench(expiry_ms=EngineConfig().expiry_ms)
            bench.now_ms += so_late
            client = bench.client(timeout_ms=2_000)
            client.disconnect()
            bench.pass_time(2_000)
            assert client.session_id in bench.engine.sessions
            bench.pass_time(100)
            assert client.session_id not in bench.engine.sessions

    def test_lost_connection_removes_nothing_before_expiry(self, client: Client) -> None:
        client.create("/a", flags=EPHEMERAL)
        client.disconnect()
        client.bench.pass_time(9_999)
        assert "/a" in client.bench.engine.paths()
        client.bench.pass_time(TICK_MS + 1)
        assert "/a" not in client.bench.engine.paths()

    def test_every_request_restarts_the_timeout(self, client: Client) -> None:
        """M-5; a refused one too."""
        for request in (r.PingRequest(), r.GetDataRequest("/none"), r.DeleteRequest("/none")):
            client.bench.pass_time(9_000)
            client.send(request)
        assert client.session_id in client.bench.engine.sessions

    def test_a_live_connection_of_an_expired_session_is_dropped(self, client: Client) -> None:
        client.create("/a", flags=EPHEMERAL)
        effects = client.bench.pass_time(10_000 + TICK_MS)
        assert [type(effect) for effect in effects] == [Commit, Drop]
        assert client.send(r.PingRequest()) == [Drop(client.peer)]

    def test_all_ephemerals_are_deleted_under_one_zxid(self, client: Client) -> None:
        for path in ("/a", "/b"):
            client.create(path, flags=EPHEMERAL)
        commits = [one for one in client.bench.engine.expire(client.session_id, NOW_MS) if isinstance(one, Commit)]
        assert [commit.zxid for commit in commits] == [client.bench.engine.zxid]
        assert client.bench.client().stat("/").pzxid == commits[0].zxid

    def test_an_unknown_session_does_not_expire(self, bench: Bench) -> None:
        assert bench.engine.expire(5, NOW_MS) == []

    def test_no_tick_is_needed_without_sessions(self, bench: Bench) -> None:
        assert bench.engine.next_tick() is None


class TestClosing:
    def test_close_is_answered_after_the_nodes_are_deleted_and_before_the_drop(self, client: Client) -> None:
        other = client.bench.client()
        client.create("/a", flags=EPHEMERAL)
        other.body(r.GetDataRequest("/a", True))
        effects = client.send(r.CloseSessionRequest())
        assert [type(effect) for effect in effects] == [Commit, Notify, Reply, Drop]
        assert effects[2] == Reply(client.peer, client.xid, client.bench.engine.zxid, 0, None)
        assert "/a" not in client.bench.engine.paths()

    def test_closed_session_cannot_be_reattached(self, client: Client) -> None:
        client.send(r.CloseSessionRequest())
        assert client.again().response == REFUSED

    def test_other_sessions_keep_their_nodes(self, client: Client) -> None:
        client.bench.client().create("/b", flags=EPHEMERAL)
        client.send(r.CloseSessionRequest())
        assert "/b" in client.bench.engine.paths()


class TestPauses:
    """M-7: a server that was suspended must not expire all sessions."""

    @pytest.fixture
    def bench(self) -> Bench:
        return Bench(forgive_pauses=True)

    def test_suspended_engine_expires_no_session(self, bench: Bench) -> None:
        clients = [bench.client(timeout_ms=2000) for _ in range(5)]
        bench.now_ms += 6000
        assert bench.note(bench.engine.advance(bench.now_ms)) == []
        bench.pass_time(1400)
        assert all(client.err(r.PingRequest()) == 0 for client in clients)

    def test_pause_is_noticed_by_any_first_call(self, bench: Bench) -> None:
        client, silent = bench.client(timeout_ms=2000), bench.client(timeout_ms=2000)
        bench.now_ms += 6000
        assert client.err(r.PingRequest()) == 0
        assert bench.engine.advance(bench.now_ms) == []
        assert silent.session_id in bench.engine.sessions

    def test_session_about_to_expire_gets_time_after_a_pause(self, bench: Bench) -> None:
        client = bench.client(timeout_ms=2000)
        bench.pass_time(1900)
        bench.now_ms += 6000
        bench.engine.advance(bench.now_ms)
        bench.pass_time(TICK_MS - 1)
        assert client.session_id in bench.engine.sessions

    def test_silent_sessions_expire_after_a_pause(self, bench: Bench) -> None:
        client = bench.client(timeout_ms=2000)
        for _ in range(3):
            bench.now_ms += 6000
            bench.engine.advance(bench.now_ms)
        bench.pass_time(2000 + 2 * TICK_MS)
        assert client.session_id not in bench.engine.sessions

    def test_engine_asks_for_two_calls_per_tick_while_there_are_sessions(self, bench: Bench) -> None:
        bench.client()
        assert bench.engine.next_tick() == bench.now_ms + TICK_MS // 2

    def test_clock_set_back_expires_no_session_and_blocks_none(self, bench: Bench) -> None:
        client = bench.client(timeout_ms=2000)
        bench.now_ms -= 3_600_000
        bench.engine.advance(bench.now_ms)
        assert client.session_id in bench.engine.sessions
        bench.pass_time(2000 + 2 * TICK_MS)
        assert client.session_id not in bench.engine.sessions

    @given(st.lists(st.integers(-5_000, 5_000), max_size=30))
    def test_active_time_never_decreases_or_jumps(self, gaps: list[int]) -> None:
        clock, now_ms = PauseTolerantClock(TICK_MS, tolerant=True), NOW_MS
        before = clock.advance_time(now_ms)
        for gap in gaps:
            now_ms += gap
            awake = clock.advance_time(now_ms)
            assert 0 <= awake - before <= TICK_MS
            assert clock.wall(awake) == now_ms
            before = awake

    @given(st.lists(st.tuples(st.integers(0, 900 * MS), st.integers(-2_000 * MS, 2_000 * MS)), max_size=30))
    @example([(1 * MS, 499 * MS)] * 5)
    @example([(0, 500 * MS), (0, 501 * MS - 1), (0, 1), (0, 501 * MS + 1)])
    @example(
        [
            (0, -669_000_001),
            (0, -58_132),
            (0, -1_413_063),
            (0, 30_767_131),
            (0, 50_925_975),
            (58_133, -1_962),
            (0, -850_278_082),
            (1, 0),
        ]
    )
    def test_steps_of_the_wall_clock_age_no_session(self, moves: list[tuple[int, int]]) -> None:
        """Steps of any size: active time is at most the time that has passed."""
        wall_ns, steady_ns = NOW_MS * MS, 7
        clock, steady = PauseTolerantClock(TICK_MS, tolerant=True), SteadyClock(TICK_MS, wall_ns, steady_ns)
        began = clock.advance_time(steady.advance_time(wall_ns, steady_ns))
        for passed, step in moves:
            wall_ns, steady_ns = wall_ns + passed + step, steady_ns + passed
            now_ms = steady.advance_time(wall_ns, steady_ns)
            assert abs(now_ms - wall_ns // MS) <= TICK_MS + 2
            before = clock.active_ms
            assert 0 <= clock.advance_time(now_ms) - before <= passed // MS + 1
        assert clock.active_ms - began <= steady_ns // MS + 1


class TestRestart:
    """M-27: sessions come back with their full time-out."""

    @pytest.mark.parametrize("forgiving", [False, True])
    def test_timeouts_start_at_the_first_call_after_a_restart(self, client: Client, forgiving: bool) -> None:
        engine = Engine(EngineConfig(tick_time_ms=TICK_MS, forgive_pauses=forgiving))
        for payload in client.bench.payloads():
            engine.replay(payload)
        assert engine.next_tick() == 0
        later = NOW_MS + 10**9
        assert engine.advance(later) == []
        assert client.session_id in engine.sessions
        due = engine.next_tick()
        assert due is not None
        assert later < due <= later + 10_000 + TICK_MS

    def test_changed_timeout_survives_a_restart_although_it_uses_no_zxid(self, client: Client) -> None:
        bench, zxid, again = client.bench, client.bench.engine.zxid, Engine()
        client.again(timeout_ms=3000)
        assert bench.engine.zxid == zxid
        for payload in bench.payloads():
            again.replay(payload)
        assert (again.zxid, again.sessions[client.session_id].timeout_ms) == (zxid, 3000)

    def test_new_session_ids_follow_the_old_ones(self, client: Client) -> None:
        other = Bench()
        for payload in client.bench.payloads():
            other.engine.replay(payload)
        other.now_ms = 0
        assert other.client().session_id == client.session_id + 1


class TestContainers:
    """M-22."""

    MINUTE_MS = 60_000

    @pytest.fixture
    def client(self, bench: Bench) -> Client:
        client = bench.client(timeout_ms=60_000)
        client.body(r.CreateContainerRequest("/box"))
        return client

    def pass_minutes(self, client: Client, minutes: int) -> None:
        for _ in range(2 * minutes):
            client.bench.pass_time(self.MINUTE_MS // 2)
            client.send(r.PingRequest())

    def test_container_is_deleted_once_its_children_are_deleted(self, client: Client) -> None:
        client.create("/box/a")
        self.pass_minutes(client, 2)
        client.body(r.DeleteRequest("/box/a"))
        assert "/box" in client.bench.engine.paths()
        self.pass_minutes(client, 1)
        assert "/box" not in client.bench.engine.paths()

    def test_unused_container_is_deleted_after_five_minutes(self, client: Client) -> None:
        self.pass_minutes(client, 4)
        assert "/box" in client.bench.engine.paths()
        self.pass_minutes(client, 2)
        assert "/box" not in client.bench.engine.paths()

    def test_deletion_of_a_container_is_a_transaction_that_fires_watches(self, client: Client) -> None:
        client.create("/box/a")
        client.body(r.DeleteRequest("/box/a"))
        client.body(r.GetDataRequest("/box", True))
        self.pass_minutes(client, 1)
        assert client.events() == [(EventType.NODE_DELETED, "/box")]
        assert client.stat("/").pzxid == client.bench.engine.zxid

    def test_persistent_node_is_not_deleted(self, client: Client) -> None:
        client.create("/t")
        client.create("/t/a")
        client.body(r.DeleteRequest("/t/a"))
        self.pass_minutes(client, 10)
        assert "/t" in client.bench.engine.paths()

    def test_a_container_wakes_a_server_without_sessions(self, client: Client) -> None:
        client.send(r.CloseSessionRequest())
        client.bench.pass_time(6 * self.MINUTE_MS)
        assert "/box" not in client.bench.engine.paths()
        assert client.bench.engine.next_tick() is None


def test_only_clients_with_the_required_identity_are_admitted() -> None:
    bench = Bench(required_digest="me:UrRtE1INVs0fW3QHj1TF2ro2Yf8=")
    client = bench.client()
    assert client.err(r.GetDataRequest("/")) == ErrorCode.NO_AUTH
    assert client.err(r.CreateRequest("/a")) == ErrorCode.NO_AUTH
    assert client.err(r.PingRequest()) == 0
    assert "/a" not in bench.engine.paths()
    client.auth(b"me:wrong")
    assert client.err(r.GetDataRequest("/")) == ErrorCode.NO_AUTH
