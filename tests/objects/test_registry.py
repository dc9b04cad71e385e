"""Registry shared by threads, clients and processes."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions.membership import register
from helpers.request_counts import counted, is_at_rest
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Peer, Running, expire, waiting_calls
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from distsync import NameTakenError, PayloadPickleError
from distsync._client.client import Client
from distsync._protocols.state.registry import OwnedEntry
from distsync.recipes import Entry, Registry

MakeClient = Callable[..., Client]


@pytest.fixture
def registry(client: Client) -> Registry:
    return Registry(name="r")


@pytest.fixture
def elsewhere(other: Client) -> Registry:
    return Registry(name="r", client=other)


def test_registry_is_a_mapping_shared_by_clients_and_processes(
    registry: Registry, elsewhere: Registry, peer: Peer
) -> None:
    assert dict(registry) == {}
    registry["a"] = "10.0.0.1:1"
    registry["b/ü"] = Entry({"port": 2}, {"zone": "x"})
    assert list(registry) == ["a", "b/ü"]
    assert dict(registry) == {"a": Entry("10.0.0.1:1"), "b/ü": Entry({"port": 2}, {"zone": "x"})}
    assert elsewhere.wait_for("b/ü", PATIENCE) == registry["b/ü"]
    assert elsewhere.resolve("a", sync=True) == "10.0.0.1:1"
    assert peer.do(registry.resolve, "a") == "10.0.0.1:1"
    assert registry.pop("a").address == "10.0.0.1:1"
    assert ("a" in registry, len(registry)) == (False, 1)
    registry.clear()
    assert len(registry) == 0


def test_own_registration_is_visible_at_once(registry: Registry) -> None:
    for number in range(20):
        registry["a"] = number
        assert registry["a"].address == number
        del registry["a"]
        assert "a" not in registry


def test_registration_during_a_read_of_mine_by_another_thread_is_not_lost(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker = threading.get_ident()

    def register_during_read(entry: OwnedEntry) -> bool:
        if threading.get_ident() == asker:
            Running(registry.register, "b", 2).result()
        return not entry.ended.fired

    registry["a"] = 1
    with monkeypatch.context() as patched:
        patched.setattr(OwnedEntry, "is_maintained", property(register_during_read))
        assert registry.mine == {"a"}
    assert registry.mine == {"a", "b"}
    registry.register("b", 3)
    registry.clear()


def test_other_clients_can_read_entries_from_their_znodes(
    registry: Registry, client: Client, observer: Observer
) -> None:
    registry["a"] = "here"
    data, stat = observer.kazoo.get(f"{registry.path}/a")
    assert (json.loads(data)["address"], stat.ephemeralOwner) == ("here", client.session_id)
    del registry["a"]


def test_entry_of_a_killed_process_is_deleted_unless_it_is_persistent(
    registry: Registry, client: Client, make_mortal: Callable[..., Peer], observer: Observer
) -> None:
    mortal = make_mortal()
    mortal.do(register, registry, "short", 1, False)
    mortal.do(register, registry, "lasting", 2, True)
    registry.wait_for("lasting", PATIENCE)
    assert {name: entry.persistent for name, entry in registry.items()} == {"short": False, "lasting": True}
    mortal.kill()
    eventually(lambda: list(registry) == ["lasting"])
    del registry["lasting"]
    observer.wipe(registry.path)


def test_register_of_a_taken_name_raises_and_assignment_replaces_the_entry(
    registry: Registry, elsewhere: Registry, observer: Observer
) -> None:
    registry["a"] = 1
    with pytest.raises(NameTakenError, match="'a' in .* is already registered by "):
        elsewhere.register("a", 2)
    assert registry.resolve("a") == 1
    assert registry.mine == {"a"}
    registry.register("a", 3)
    elsewhere["a"] = 4
    assert elsewhere.mine == {"a"}
    eventually(lambda: registry.mine == frozenset())
    eventually(lambda: registry.resolve("a") == 4)
    del registry["a"]
    eventually(lambda: elsewhere.mine == frozenset())


def test_entry_is_recreated_after_a_session_loss(registry: Registry, client: Client, elsewhere: Registry) -> None:
    registry["a"] = 1
    before = client.session_id
    expire(client)
    eventually(lambda: client.session_id not in (None, before))
    eventually(lambda: "a" in elsewhere and elsewhere["a"].owner.token > 0)
    assert registry.mine == {"a"}
    del registry["a"]


def test_read_with_sync_sees_a_change_made_while_reading_was_denied(
    registry: Registry, elsewhere: Registry, observer: Observer
) -> None:
    registry.register("a", 1, persistent=True)
    assert elsewhere.resolve("a") == 1
    path = f"{registry.path}/a"
    observer.kazoo.add_auth("digest", "u:p")
    observer.kazoo.set_acls(path, [make_digest_acl("u", "p", all=True)])
    data = json.loads(observer.kazoo.get(path)[0])
    observer.kazoo.set(path, json.dumps({**data, "address": 2}).encode())
    observer.kazoo.set_acls(path, OPEN_ACL_UNSAFE)
    assert elsewhere.resolve("a", sync=True) == elsewhere.resolve("a") == 2
    del registry["a"]
    with pytest.raises(KeyError):
        elsewhere.resolve("a", sync=True)


def test_wait_for_is_woken_by_its_own_name_only(registry: Registry, elsewhere: Registry, other: Client) -> None:
    assert elsewhere.wait_for("a", UNIT) is None
    waiting = Running(elsewhere.wait_for, "a")
    eventually(lambda: waiting_calls(other))
    before = other.statistics().events
    registry["b"] = 1
    registry["a"] = 2
    assert waiting.result() == Entry(2)
    assert other.statistics().events - before == 1
    registry.clear()


def test_costs_of_a_registry(registry: Registry, client: Client, elsewhere: Registry, other: Client) -> None:
    registry["warm"] = 0
    eventually(lambda: is_at_rest(client))  # the background work for the entry is idle
    before = requests(client)
    registry["a"] = 1
    eventually(lambda: requests(client) == before + 3)
    assert elsewhere.wait_for("a", PATIENCE)
    assert len(registry) == len(elsewhere) == 2
    with counted(client, other) as look:
        for _ in range(10):
            assert registry.resolve("a") == elsewhere.resolve("a") == 1
    assert look.requests == 0
    with counted(client) as delete:
        del registry["a"]
    assert delete.requests == 1
    eventually(lambda: len(elsewhere) == 1)
    del registry["warm"]


def requests(client: Client) -> int:
    return sum(client.statistics().requests.values())


def test_invalid_entries_and_unknown_names_raise(registry: Registry) -> None:
    with pytest.raises(TypeError, match="a name must be a str, not int"):
        registry[1] = "x"
    with pytest.raises(PayloadPickleError, match="the entry 'a'"):
        registry["a"] = object()
    with pytest.raises(KeyError, match="nothing"):
        _ = registry["nothing"]
    with pytest.raises(KeyError, match="nothing"):
        del registry["nothing"]
    with pytest.raises(KeyError, match="nothing"):
        registry.resolve("nothing")


def test_pickled_registry_has_the_same_path(registry: Registry) -> None:
    assert pickle.loads(pickle.dumps(registry)).path == registry.path
