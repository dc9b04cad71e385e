"""Values cached by a watch are read without a protocol, but only if current and of the current client."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from helpers.forked_children import check, in_child
from helpers.timing import eventually
from helpers.worker_processes import expire

from distsync import Config, Event
from distsync._client import default_client
from distsync._client.client import Client
from distsync._objects.observable import CachedRead
from distsync.errors import ClientClosedError


def seen(event: Event) -> bool:
    """Return the flag of the event, and check that it is cached."""
    state = event.is_set()
    assert isinstance(event._glance, CachedRead)
    return state


def test_read_of_a_cached_value_runs_no_protocol(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    event, config = Event(name="e"), Config(name="c")
    event.set()
    config["rate"] = 10
    assert (seen(event), config["rate"]) == (True, 10)
    monkeypatch.setattr(client, "run", None)
    assert (event.is_set(), config["rate"]) == (True, 10)


def test_own_writes_are_visible_at_once_and_those_of_other_clients_eventually(client: Client, other: Client) -> None:
    event = Event(name="e")
    for state in (True, False) * 5:
        (event.set if state else event.clear)()
        assert seen(event) is state
    Event(name="e", client=other).set()
    eventually(event.is_set)


def test_write_is_visible_at_once_in_another_object_of_the_same_name(client: Client) -> None:
    ours, same = Event(name="e"), Event(name="e")
    for state in (True, False) * 5:
        assert seen(same) is not state
        (ours.set if state else ours.clear)()
        assert same.is_set() is state


def test_state_is_read_again_in_the_next_session(client: Client) -> None:
    event = Event(name="e")
    event.set()
    assert seen(event)
    expire(client)
    assert seen(event)


def test_cached_value_of_a_closed_client_is_not_returned(make_client: Callable[..., Client]) -> None:
    client = make_client()
    event = Event(name="e", client=client)
    assert not seen(event)
    client.close()
    with pytest.raises(ClientClosedError):
        event.is_set()


def test_object_without_its_own_client_reads_from_the_current_default_client(client: Client, other: Client) -> None:
    event, far = Event(name="e"), Event(name="e", client=other)
    assert not seen(event)
    default_client.set_default(other)
    far.set()
    assert event.is_set()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_child_does_not_use_the_cache_of_its_parent(client: Client) -> None:
    event = Event(name="e")
    assert not seen(event)

    def work() -> None:
        event.set()
        check(event.is_set(), "the child's own write does not show")
        client.close()

    assert in_child(work) == 0
    eventually(event.is_set)


def test_mutable_values_are_returned_as_copies(client: Client) -> None:
    config = Config(name="c")
    config["hosts"] = ["a"]
    config["hosts"].append("b")
    assert config["hosts"] == ["a"]
