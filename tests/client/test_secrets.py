"""Secrets do not appear in logs, reprs, errors, znodes, the server's log or the list of processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.all_object_kinds import KINDS, PROCESSES, one_of_each
from helpers.leak_census import Observer, children, command_of
from helpers.servers import ServerProcess

from distsync import ConfigurationError, DistsyncError, Lock, PayloadRefusedError, Queue
from distsync._client import default_client, session_handover
from distsync._client.client import Client
from distsync._client.settings import read_settings
from distsync.testing.faulty_proxy import Proxy

MakeClient = Callable[..., Client]

PASSWORD, AUTHKEY, ACCEPTED, KEY_PASSWORD = "open-sesame", "sign-sesame", "was-sesame", "tls-sesame"
SECRET = "sesame"
EVERYTHING = 1
"""The most talkative level: kazoo has one below DEBUG."""


@pytest.fixture
def talkative(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(EVERYTHING), caplog.at_level(EVERYTHING, "distsync"):
        yield caplog


@pytest.fixture
def careful(make_client: MakeClient, observer: Observer, proxy: Proxy) -> Iterator[Client]:
    observer.kazoo.add_auth("digest", f"alice:{PASSWORD}")
    made = make_client(hosts=proxy.hosts, auth=f"digest:alice:{PASSWORD}", authkey=AUTHKEY, authkeys_accepted=ACCEPTED)
    default_client.set_default(made)
    yield made
    default_client.set_default(None)
    made.close()


def session_password(client: Client) -> bytes:
    assert client._runtime is not None
    password = (client._runtime.zk_session.client_id or (0, b""))[1]
    assert any(password)
    return password


def spellings(password: bytes) -> list[str]:
    return [password.hex(), repr(password)[2:-1], str(list(password))]


def processes() -> Iterator[str]:
    """What the system shows all users about our children."""
    for pid in children():
        yield command_of(pid)


def chain(error: BaseException | None) -> Iterator[str]:
    """All that a traceback would show of it."""
    while error is not None:
        yield f"{error!r} {error}"
        error = error.__cause__ or error.__context__


@pytest.mark.slow_on("zookeeper")
def test_no_secret_appears_in_any_output(
    careful: Client,
    talkative: pytest.LogCaptureFixture,
    observer: Observer,
    proxy: Proxy,
    server: ServerProcess,
    namespace: str,
) -> None:
    told: list[str] = []
    with one_of_each(careful, KINDS | PROCESSES) as made:
        hidden = [SECRET, *spellings(session_password(careful))]
        told += [repr(each) + str(each) for each in made.values()]
        told += list(processes())
        for path, data in observer.contents(namespace).items():
            told += [path, repr(data)]
        proxy.cut()  # the session is attached and authenticated again
        assert Lock(name="after", client=careful).acquire(timeout=20)
        Lock(name="after", client=careful).release()
        hidden += spellings(session_password(careful))
    told += [
        repr(careful),
        repr(careful.settings),
        repr(careful.codec),
        repr(careful.statistics()),
        repr(careful._runtime),
    ]
    told += [record.getMessage() + str(record.args) + (record.exc_text or "") for record in talkative.records]
    told.append(server.output())
    assert len(told) > 300
    assert any("Sending request" in text for text in told)  # they are all there
    assert [text[:300] for text in told if any(secret in text for secret in hidden)] == []


def test_pickles_of_objects_name_no_secret(careful: Client) -> None:
    assert SECRET.encode() not in pickle.dumps([Lock(name="a", client=careful), Queue(name="b")])


def test_errors_contain_no_secret(careful: Client, make_client: MakeClient, observer: Observer, namespace: str) -> None:
    told: list[str] = []

    def attempt(what: Callable[[], Any]) -> None:
        with pytest.raises(DistsyncError) as refusal:
            what()
        told.extend(chain(refusal.value))

    Queue(name="q").put("item")
    Queue(name="p", client=make_client(auth=f"digest:alice:{PASSWORD}", authkey="other-key")).put("item")
    attempt(lambda: Queue(name="p").get(timeout=5))
    attempt(lambda: Lock(name="a", client=make_client(auth="digest:bob:b-sesame")).acquire())
    for setting, value in (
        ("auth", "digest:-sesame"),
        ("auth", ["sesame"]),
        ("authkey", ["sesame"]),
        ("authkeys_accepted", {"sesame"}),
        ("authkeys_accepted", "sesame"),
        ("tls_key_password", [KEY_PASSWORD]),
    ):
        attempt(lambda given={setting: value}: read_settings({}, **given))  # type: ignore[misc]
    assert [text for text in told if SECRET in text] == []
    with pytest.raises(PayloadRefusedError):
        Queue(name="q", client=make_client(auth=f"digest:alice:{PASSWORD}")).get(timeout=5)


@pytest.mark.slow_on("zookeeper")
def test_wrong_password_is_not_repeated(server: ServerProcess, talkative: pytest.LogCaptureFixture) -> None:
    client = Client(server.hosts, auth=[("unknown-scheme", PASSWORD)], session_timeout=1.0)
    with client, pytest.raises(ConfigurationError) as refusal:
        Lock(name="a", client=client).acquire()
    assert not any(SECRET in text for text in (*chain(refusal.value), talkative.text))


def test_will_does_not_show_what_it_leaves() -> None:
    will = session_handover.SessionHandover(1, 2, "zk:2181", 3, PASSWORD, {"keyfile_password": KEY_PASSWORD})
    assert SECRET not in repr(will)
