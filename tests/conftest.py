"""Fixtures: one body of tests, many servers; after each test nothing remains that was not there before it.

``server``      a running server, the same for many tests: embedded and ZooKeeper in turn (--server chooses)
``own_server``  one of this test alone, to be stopped, killed, paused
``namespace``   a fresh one for each test
``client``      a client in it, the default one for this test; ``make_client()`` makes further ones
``proxy``       stands before the server, for clients that are to lose their connection
``observer``    a session that is not under test: looks at znodes, deletes them
"""

from __future__ import annotations

import multiprocessing.resource_tracker
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers import feature_switches
from helpers.leak_census import Census, Observer, nothing_more
from helpers.servers import KINDS, ServerProcess, need_zookeeper
from hypothesis import HealthCheck, settings

from distsync._client.naming import inference
from distsync._client.naming.inference import UNNAMED, unnamed_mode

# A test fails by what it finds, not by how much time the machine has for it.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

pytest_plugins = ["helpers.run_settings", "helpers.second_look"]

FAILED = pytest.StashKey[bool]()

RECEIPTS = "/receipts/r_"
"""A client keeps its receipts until it closes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--server", choices=[*KINDS, "both"], default="both", help="which server the tests run on")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server_kind" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--server")
        slow_on = {mark.args[0] for mark in metafunc.definition.iter_markers("slow_on")}
        kinds = [
            pytest.param(kind, marks=pytest.mark.slow if kind in slow_on else ())
            for kind in ([*KINDS] if chosen == "both" else [chosen])
        ]
        metafunc.parametrize("server_kind", kinds, scope="session")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: Any = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed or hasattr(report, "wasxfail")
    return report


@pytest.fixture(scope="session", autouse=True)
def nobodys_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Clear the environment's settings, and use no embedded server of the user who runs the tests."""
    home = tmp_path_factory.mktemp("home")
    home.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("DISTSYNC_") and "TEST" not in name]:
            if name not in ("DISTSYNC_TEST_SIMULATIONS", "DISTSYNC_TEST_NEED_ZOOKEEPER", "DISTSYNC_LINGER"):
                patch.delenv(name)
        patch.setenv(UNNAMED, "ignore")  # most tests use objects of their own alone
        unnamed_mode.cache_clear()  # modules of tests that create objects were imported before
        feature_switches.set_by_environment(patch)
        for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
            patch.setenv(name, str(home))
        yield


@pytest.fixture
def set_unnamed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A function that gives DISTSYNC_UNNAMED a value, here and in processes that are started."""

    def set_mode(mode: str) -> None:
        monkeypatch.setenv(UNNAMED, mode)
        unnamed_mode.cache_clear()

    yield set_mode
    unnamed_mode.cache_clear()


@pytest.fixture
def unnamed_objects_warn(set_unnamed: Callable[[str], None]) -> None:
    """DISTSYNC_UNNAMED has its default, as for users."""
    set_unnamed("")


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ServerProcess]]:
    """The servers that were started for all tests, by name."""
    running: dict[str, ServerProcess] = {}
    yield running
    for one in running.values():
        one.stop()


@pytest.fixture(scope="session")
def started(
    servers: dict[str, ServerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], ServerProcess]:
    """A function that answers the running server of a kind."""

    def start(kind: str) -> ServerProcess:
        if kind not in servers:
            made = make_server(kind, tmp_path_factory.mktemp(kind))
            made.start()
            servers[kind] = made
        return servers[kind]

    return start


@pytest.fixture(scope="session")
def server(server_kind: str, started: Callable[[str], ServerProcess]) -> ServerProcess:
    return started(server_kind)


@pytest.fixture
def own_server(server_kind: str, tmp_path: Path) -> Iterator[ServerProcess]:
    made = make_server(server_kind, tmp_path / server_kind)
    made.start()
    yield made
    made.kill()


def make_server(kind: str, folder: Path) -> ServerProcess:
    if kind == "zookeeper":
        need_zookeeper()
    return KINDS[kind](folder)


@pytest.fixture(scope="session", autouse=True)
def first_loop() -> None:
    """The first loop of uvloop opens a pipe that the process keeps."""
    with suppress(ImportError):
        import uvloop

        uvloop.new_event_loop().close()


@pytest.fixture(autouse=True)
def no_modules_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that starts a child joins the generations of the modules in which it has bound objects."""
    monkeypatch.setattr(inference, "bound_modules", {})


@pytest.fixture(autouse=True)
def nothing_remains(request: pytest.FixtureRequest, nobodys_settings: None) -> Iterator[None]:
    multiprocessing.resource_tracker.ensure_running()
    uses = request.fixturenames
    watched = request.getfixturevalue("server") if "server" in uses else None
    shared = request.getfixturevalue("servers") if "server_kind" in uses else {}

    def census() -> Census:
        return Census.take(watched, frozenset(one.pid for one in shared.values() if one.pid))

    before = census()
    yield
    if not request.node.stash.get(FAILED, False):
        remains = nothing_more(lambda: census().more_than(before))
        assert not remains, "remains after the test: " + "; ".join(remains)


@pytest.fixture
def observer(server: ServerProcess) -> Iterator[Observer]:
    eyes = Observer(server)
    yield eyes
    eyes.close()


@pytest.fixture
def namespace(request: pytest.FixtureRequest, observer: Observer) -> Iterator[str]:
    path = f"/test-{uuid.uuid4().hex[:12]}"
    yield path
    try:
        if not request.node.stash.get(FAILED, False) and not request.node.get_closest_marker("own_state"):
            remains = nothing_more(lambda: observer.orphans(path))
            assert not remains, "znodes remain after the clients closed: " + ", ".join(remains)
    finally:
        observer.wipe(path)


@pytest.fixture
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable caching, as ``linger=0`` does: the costs of a cached lock are in test_lock_cache."""
    monkeypatch.setenv("DISTSYNC_LINGER", "0")


@pytest.fixture
def make_client(
    request: pytest.FixtureRequest, server: ServerProcess, namespace: str, observer: Observer
) -> Iterator[Callable[..., Any]]:
    """A function that makes a client of the test's server and namespace; its keywords are the Client's own."""
    from distsync._client.client import Client

    made: list[Any] = []

    def make(**settings: Any) -> Any:
        client = Client(**{"hosts": server.hosts, "namespace": namespace, **settings})
        made.append(client)
        return client

    yield make
    try:
        if not request.node.stash.get(FAILED, False) and not all(client.closed for client in made):
            # of a generation, or a user of an object's parameters, until its client is closed
            member = re.compile(f"{namespace}/((module|process)/[^/]+/m_|.*users/.*/u_)")
            remains = nothing_more(
                lambda: [one for one in observer.ephemerals(namespace) if RECEIPTS not in one and not member.match(one)]
            )
            assert not remains, "held or waited for after the test: " + ", ".join(remains)
    finally:
        for client in made:
            client.close()


@pytest.fixture
def proxy(server: ServerProcess) -> Iterator[Any]:
    """Stands between a client and the server, and breaks on demand."""
    from distsync.testing.faulty_proxy import Proxy

    with Proxy(server.hosts) as made:
        yield made


@pytest.fixture
def client(make_client: Callable[..., Any]) -> Iterator[Any]:
    """A client, the default one as long as the test runs."""
    from distsync._client import default_client

    made = make_client()
    default_client.set_default(made)
    yield made
    default_client.set_default(None)
