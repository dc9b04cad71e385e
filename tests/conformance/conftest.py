"""CPython's tests for processes run with some start methods on some servers, unless all are asked for.

The calls of each of CPython's families must reach the client, or a pipe to the worker of a pool: one that binds classes
before ours take their place tests the standard library.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.reached import Reached, requests_of

from distsync.multiprocessing._pool.pipe_caller import PipeCaller

CONNECTED = ("face", "start_method", "connected")
"""The fixtures after which the client is connected."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if not _is_chosen(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_chosen(item: pytest.Item) -> bool:
    chosen: dict[str, str] = getattr(getattr(item, "callspec", None), "params", {})
    from helpers.cpython_processes import ALL, is_chosen

    if {"case", "server_kind", "method"} <= chosen.keys():  # executors, which need no server
        return ALL or chosen["method"] == "fork" or chosen["server_kind"] == "embedded"
    if not {"start_method", "server_kind", "method"} <= chosen.keys():
        return True
    return is_chosen(chosen["start_method"], chosen["server_kind"], chosen["method"])


@pytest.fixture(scope="module")
def reached() -> Iterator[Reached]:
    made = Reached()
    yield made
    assert not made.unreached(), "no call of these families reached a client: is it distsync that they test?"


@pytest.fixture(autouse=True)
def reaches_client(request: pytest.FixtureRequest, reached: Reached, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Count the requests of a case of CPython's that runs on distsync, and the tasks that it sends by pipes."""
    ready = [name for name in CONNECTED if name in request.fixturenames]
    if not ready or not hasattr(request.node, "callspec"):
        yield
        return
    for name in ready:
        request.getfixturevalue(name)
    client, chosen = request.getfixturevalue("client"), request.node.callspec.params
    before, submit, submitted = requests_of(client), PipeCaller._submit, list[object]()
    monkeypatch.setattr(PipeCaller, "_submit", lambda *task: submitted.append(task[1]) or submit(*task))  # type: ignore[func-returns-value]
    yield
    family = chosen["family"] if "family" in chosen else chosen["case"].family
    reached.add(f"{request.node.originalname}: {family}", requests_of(client) - before + len(submitted))
