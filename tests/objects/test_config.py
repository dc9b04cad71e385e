"""Config shared by threads, clients and processes."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions.membership import add_to
from helpers.request_counts import counted
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, waiting_calls
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from distsync import ClientClosedError, CorruptNodeError, PayloadPickleError, PayloadTooLargeError
from distsync._client.client import Client
from distsync._protocols.state import watch_cache
from distsync._protocols.state.watch_cache import UNKNOWN
from distsync.recipes import Config
from distsync.testing.faulty_proxy import Proxy

MakeClient = Callable[..., Client]


@pytest.fixture
def config(client: Client) -> Config:
    return Config(name="c")


@pytest.fixture
def elsewhere(other: Client) -> Config:
    return Config(name="c", client=other)


def test_config_is_a_mapping_shared_by_clients_and_processes(config: Config, elsewhere: Config, peer: Peer) -> None:
    assert dict(config) == {}
    config["a"] = [1, 2]
    config.update({"b": None}, c=0.5)
    assert dict(config) == {"a": [1, 2], "b": None, "c": 0.5}
    assert elsewhere.wait_for(lambda: elsewhere.snapshot() == dict(config), PATIENCE)
    assert peer.do(config.snapshot) == dict(config)
    assert (config.pop("a"), config.pop("a", 7), config.setdefault("b", 1), config.setdefault("d", 1)) == (
        [1, 2],
        7,
        None,
        1,
    )
    del config["b"]
    assert (list(config), "b" in config, len(config)) == (["c", "d"], False, 2)
    config.replace({"x": 1})
    assert config.popitem() == ("x", 1)
    config.clear()
    assert len(config) == 0


def test_write_is_visible_at_once_in_other_threads_of_the_process(config: Config) -> None:
    for number in range(20):
        config["a"] = number
        assert Running(config.__getitem__, "a").result() == number


def test_values_are_returned_as_copies(config: Config) -> None:
    config["a"] = [1]
    config["a"].append(2)
    assert config["a"] == [1]
    assert config.edit(lambda settings: settings["a"].append(2)) == {"a": [1, 2]} == dict(config)


def test_other_clients_can_read_and_write_the_znode_as_json(config: Config, observer: Observer) -> None:
    config["a"] = "ü"
    assert json.loads(observer.kazoo.get(config.path)[0]) == {"a": "ü"}
    observer.kazoo.set(config.path, b'{"b": 1}')
    assert config.wait_for(lambda: dict(config) == {"b": 1}, PATIENCE)
    observer.kazoo.set(config.path, b"[]")
    with pytest.raises(CorruptNodeError):
        config.snapshot(sync=True)


def test_concurrent_edits_of_several_processes_are_all_applied(config: Config, peers: list[Peer]) -> None:
    for peer in peers:
        peer.start(add_to, config, "sum", 10)
    for peer in peers:
        peer.result()
    assert config.snapshot(sync=True) == {"sum": 30}


def test_compare_and_set(config: Config) -> None:
    assert not config.compare_and_set("a", 1, 2)
    assert config.compare_and_set("a", ..., 1)
    assert not config.compare_and_set("a", ..., 2)
    assert config.compare_and_set("a", 1, 2)
    assert dict(config) == {"a": 2}


def take(config: Config) -> Any:
    return config.pop("new", "nothing")


def drop(config: Config) -> Any:
    del config["new"]


def swap(config: Config) -> Any:
    return config.compare_and_set("new", 1, 2)


@pytest.mark.parametrize(("change", "expected"), [(take, 1), (drop, None), (swap, True)])
def test_change_is_decided_by_the_current_value_instead_of_a_stale_cache(
    config: Config, far: Client, proxy: Proxy, change: Callable[[Config], Any], expected: Any
) -> None:
    theirs = Config(name="c", client=far)
    assert len(theirs) == 0
    proxy.blackhole()
    config["new"] = 1
    changing = Running(change, theirs)
    changing.join(2 * UNIT)  # with a cached value it would already have ended
    proxy.heal()
    assert changing.result() == expected


def test_edit_is_not_retried_when_its_client_is_closed_during_the_call(config: Config, make_client: MakeClient) -> None:
    config["a"] = 1
    closing = make_client()
    theirs = Config(name="c", client=closing)
    assert theirs["a"] == 1
    calls: list[Any] = []

    def function(settings: dict[str, Any]) -> None:
        calls.append(settings)
        closer = Running(closing.close)
        eventually(lambda: any(task._interrupt for task in tuple(closing._runtime._calls)))
        settings["a"] = 2
        calls.append(closer)

    with pytest.raises(ClientClosedError):
        theirs.edit(function)
    calls[1].result()
    assert (len(calls), config["a"]) == (2, 1)


def test_expected_value_is_compared_in_its_json_form(config: Config) -> None:
    config["a"] = (1, 2)
    assert config.compare_and_set("a", (1, 2), {1: 2})
    assert config.compare_and_set("a", {1: 2}, 3)


def test_on_change_is_called_once_per_change(config: Config, elsewhere: Config) -> None:
    calls: list[Any] = []
    config["a"] = 1
    elsewhere.on_change = lambda before, now: calls.append((before, now))
    eventually(lambda: elsewhere._watched.current)
    config.update(a=2, b=2)
    eventually(lambda: calls)
    config["a"] = 2  # no change
    del config["b"]
    eventually(lambda: len(calls) == 2)
    assert calls == [({"a": 1}, {"a": 2, "b": 2}), ({"a": 2, "b": 2}, {"a": 2})]
    elsewhere.on_change = None


def test_on_change_that_is_replaced_repeatedly_is_called_once_per_change(config: Config, client: Client) -> None:
    """The background thread is blocked at first, so that its tasks queue up in order."""
    calls: list[Any] = []
    config["a"] = 0
    with client._fast_path_state()[0]:
        for _ in range(3):
            config.on_change = lambda _, now: calls.append(now["a"])
            config.on_change = None
        config.on_change = lambda _, now: calls.append(now["a"])
    eventually(lambda: config._watched._listeners and UNKNOWN not in config._watched._listeners.values())
    for number in (1, 2):
        config["a"] = number
        eventually(lambda: calls[-1:] == [number])  # noqa: B023
    assert calls == [1, 2]
    config.on_change = None
    eventually(lambda: config._watched.idle)


def test_on_change_is_called_again_after_malformed_data_was_repaired(
    config: Config, elsewhere: Config, observer: Observer
) -> None:
    calls: list[Any] = []
    config["a"] = 1
    elsewhere.on_change = lambda before, now: calls.append((before, now))
    eventually(lambda: elsewhere._watched.current)
    observer.kazoo.set(config.path, b"[]")
    eventually(lambda: not elsewhere._watched._copy)  # it was read
    with pytest.raises(CorruptNodeError):
        elsewhere.snapshot()
    assert calls == []
    observer.kazoo.set(config.path, b'{"a": 2}')
    eventually(lambda: calls == [({"a": 1}, {"a": 2})])
    elsewhere.on_change = None


def test_on_change_is_called_again_after_read_permission_was_restored(
    config: Config, elsewhere: Config, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_cache, "REFUSED_S", UNIT)
    calls: list[Any] = []
    config["a"] = 1
    elsewhere.on_change = lambda before, now: calls.append(now)
    eventually(lambda: elsewhere._watched.current)
    observer.kazoo.add_auth("digest", "u:p")
    observer.kazoo.set_acls(config.path, [make_digest_acl("u", "p", all=True)])
    elsewhere._watched.forget()
    eventually(lambda: not elsewhere._watched._copy)  # the read was refused
    observer.kazoo.set_acls(config.path, OPEN_ACL_UNSAFE)
    config["a"] = 2
    eventually(lambda: calls == [{"a": 2}])
    elsewhere.on_change = None


def test_wait_continues_after_its_session_expired(config: Config, client: Client, elsewhere: Config) -> None:
    assert not config.wait(UNIT)
    waiting = Running(config.wait)
    eventually(lambda: waiting_calls(client))
    before = client.session_id
    expire(client)
    eventually(lambda: client.session_id not in (None, before))
    elsewhere["a"] = 1
    assert waiting.result()


def test_costs_of_reads_and_updates(config: Config, client: Client, elsewhere: Config, other: Client) -> None:
    config["a"] = 1
    assert config["a"] == elsewhere.snapshot(sync=True)["a"] == 1
    with counted(client, other) as look:
        for _ in range(10):
            assert dict(config) == dict(elsewhere)
    assert look.requests == 0
    with counted(client) as change, counted(other) as event:
        config.update(a=2, b=2, c=2)
        eventually(lambda: elsewhere.get("c") == 2)
    assert change.requests == 1
    assert (event.requests, event.events) == (1, 1)


def test_invalid_settings_and_missing_keys_raise_and_change_nothing(config: Config) -> None:
    with pytest.raises(TypeError, match="must be a str, not int"):
        config[1] = 1
    with pytest.raises(PayloadPickleError, match="the setting 'a'"):
        config.update(b=1, a=object())
    with pytest.raises(PayloadTooLargeError, match="with all settings"):
        config.update(a="x" * 600_000, b="x" * 600_000)
    with pytest.raises(KeyError, match="a"):
        _ = config["a"]
    with pytest.raises(KeyError, match="a"):
        del config["a"]
    with pytest.raises(KeyError, match="a"):
        config.pop("a")
    with pytest.raises(ZeroDivisionError):
        config.edit(lambda settings: 1 / 0)
    assert dict(config) == {}


def test_pickled_config_has_the_same_path(config: Config) -> None:
    assert pickle.loads(pickle.dumps(config)).path == config.path
