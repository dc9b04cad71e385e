"""What a watch keeps is read without a protocol, and only while it is the present client's, and current."""

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
    """Its state; it is kept now."""
    state = event.is_set()
    assert isinstance(event._glance, CachedRead)
    return state


def test_look_at_what_is_kept_runs_no_protocol(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    event, config = Event(name="e"), Config(name="c")
    event.set()
    config["rate"] = 10
    assert (seen(event), config["rate"]) == (True, 10)
    monkeypatch.setattr(client, "run", None)
    assert (event.is_set(), config["rate"]) == (True, 10)


def test_own_writes_show_at_once_and_those_of_others_soon(client: Client, other: Client) -> None:
    event = Event(name="e")
    for state in (True, False) * 5:
        (event.set if state else event.clear)()
        assert seen(event) is state
    Event(name="e", client=other).set()
    eventually(event.is_set)


def test_another_object_of_the_same_name_shows_what_the_first_has_written(client: Client) -> None:
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


def test_closed_client_keeps_nothing(make_client: Callable[..., Client]) -> None:
    client = make_client()
    event = Event(name="e", client=client)
    assert not seen(event)
    client.close()
    with pytest.raises(ClientClosedError):
        event.is_set()


def test_object_without_a_client_of_its_own_looks_where_the_default_one_is(client: Client, other: Client) -> None:
    event, far = Event(name="e"), Event(name="e", client=other)
    assert not seen(event)
    default_client.set_default(other)
    far.set()
    assert event.is_set()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_child_looks_for_itself(client: Client) -> None:
    event = Event(name="e")
    assert not seen(event)

    def work() -> None:
        event.set()
        check(event.is_set(), "the child's own write does not show")
        client.close()

    assert in_child(work) == 0
    eventually(event.is_set)


def test_values_that_can_be_changed_are_copies(client: Client) -> None:
    config = Config(name="c")
    config["hosts"] = ["a"]
    config["hosts"].append("b")
    assert config["hosts"] == ["a"]
