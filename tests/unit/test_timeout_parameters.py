"""Every public call that waits for the server has a timeout, or is in a list that says what limits it instead."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from helpers.public_names import documented

RUNNERS = {"_run", "_ask", "_read", "_seen", "_await", "_run_blocking", "run_async"}
"""Methods that wait for the server."""


STDLIB = {
    *("Event.is_set", "Event.set", "Event.clear", "Lock.locked", "Condition.notify", "Condition.notify_all"),
    *("Election.locked", "SharedReader.locked"),
    *("_LockView.locked", "Barrier.abort", "Barrier.broken", "Barrier.n_waiting", "Barrier.reset"),
    *("Queue.qsize", "Queue.empty", "Queue.full", "Queue.task_done", "Queue.shutdown", "Queue.is_shutdown"),
    *("Queue.unfinished_tasks", "SimpleQueue.qsize", "SimpleQueue.empty", "SimpleQueue.put"),
    *("JoinableQueue.qsize", "JoinableQueue.task_done", "JoinableQueue.shutdown"),
    *("Semaphore.locked", "async Barrier.reset", "async Barrier.abort", "async Queue.put"),
    *("Cell.change", "Cell.make", "Cell.read", "Cell.set", "SyncManager.clear", "SyncManager.shutdown"),
    *("DictProxy.copy", "DictProxy.items", "DictProxy.keys", "DictProxy.update", "DictProxy.values"),
    *("ValueProxy.get", "ValueProxy.set", "Config.update"),
}
"""Calls with a signature of the standard library: the block and the client's default limit them."""

PROPERTIES = {
    *(
        "Election.leader",
        "Counter.value",
        "CountDownLatch.count",
        "Gate.is_open",
        "Group.members",
        "Transaction.outcome",
    ),
    *("Transaction.reason", "DoubleBarrier.n_inside", "DoubleBarrier.n_waiting"),
}
"""Properties of recipes: the block and the client's default limit them."""

WAITS = {
    *("Queue.join", "JoinableQueue.join", "SimpleQueue.get", "Participant.run"),
    *("async Barrier.wait", "async Condition.wait", "async Condition.wait_for", "async Event.wait"),
    *("async Election.acquire", "async SharedReader.acquire"),
    *("async Lock.acquire", "async Queue.get", "async Queue.join", "async Semaphore.acquire"),
}
"""Calls that wait for another process. The standard library gives them no timeout; asyncio has ``asyncio.timeout``."""

BOUNDED = {
    *("Queue.get_nowait", "Queue.put_nowait", "SimpleQueue.get_nowait", "SimpleQueue.put_nowait"),
    *("RateLimiter.try_acquire", "Lock.release", "RLock.release", "SharedReader.release", "Semaphore.release"),
}
"""Calls that do not wait, and releases, which wait for at most the session timeout."""


def function_of(value: Any) -> Any:
    """Return the Python function behind a method or property."""
    return inspect.unwrap(getattr(value, "fget", None) or getattr(value, "__func__", value))


@functools.cache
def names_used(function: Any) -> tuple[frozenset[str], frozenset[str]]:
    """Return the attributes that the function uses: those of any object, and those of ``self``."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    used = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    own = [node.attr for node in used if isinstance(node.value, ast.Name) and node.value.id == "self"]
    return frozenset(node.attr for node in used), frozenset(own)


def waits(kind: type, function: Any, seen: frozenset[str] = frozenset()) -> bool:
    """Return whether the function waits for the server, by itself or by methods of its class that it uses."""
    used, own = names_used(function)
    if used & RUNNERS or ("run" in used and used & {"client", "_client"}):
        return True
    methods = {name: inspect.getattr_static(kind, name, None) for name in own - seen}
    return any(waits(kind, function_of(each), seen | {name}) for name, each in methods.items() if is_ours(each))


def is_ours(value: Any) -> bool:
    """Return whether this is a method or property of distsync's."""
    function = function_of(value)
    return inspect.isroutine(function) and (getattr(function, "__module__", None) or "").startswith("distsync")


def public_calls() -> Iterator[tuple[str, bool]]:
    """Yield the name of each public call that waits for the server, and whether it has a parameter ``timeout``."""
    every = documented()
    for name, value in every.items():
        kind = every.get(name.rpartition(".")[0])
        if not inspect.isclass(kind) or inspect.isclass(value) or not is_ours(value):
            continue
        function = function_of(value)
        prefix = "async " if inspect.iscoroutinefunction(function) else ""
        if waits(kind, function):
            yield prefix + function.__qualname__, "timeout" in inspect.signature(function).parameters


def test_every_public_call_that_waits_for_the_server_has_a_timeout_or_is_listed() -> None:
    calls = set(public_calls())
    assert sum(has_timeout for _, has_timeout in calls) > 70
    listed = STDLIB | PROPERTIES | WAITS | BOUNDED
    assert {name for name, has_timeout in calls if not has_timeout} == listed


def test_each_call_is_in_one_list() -> None:
    lists = (STDLIB, PROPERTIES, WAITS, BOUNDED)
    assert sum(map(len, lists)) == len(set().union(*lists))


def test_call_that_waits_by_a_method_of_its_class_is_found() -> None:
    class Object:
        def read(self) -> Any:
            return self._found()

        def _found(self) -> Any:
            return self.client.run(None)

        client: Any = None

    Object._found.__module__ = "distsync"
    assert waits(Object, Object.read)
    assert not waits(Object, function_of)
