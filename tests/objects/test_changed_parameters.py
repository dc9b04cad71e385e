"""A changed parameter of a named object is taken over when no living process uses the old one."""

from __future__ import annotations

import gc
import pickle
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.evaluating_programs import Program
from helpers.leak_census import Observer
from helpers.request_counts import spent
from helpers.servers import ServerProcess
from helpers.subprocesses import Shells
from helpers.timing import UNIT, eventually
from helpers.worker_processes import Running, expire

import distsync
import distsync.multiprocessing
from distsync import ConfigurationError, MismatchError
from distsync._client.client import Client

Make = Callable[..., Any]
Start = Callable[[], Program]

PROGRAM = """
import json, sys
import distsync, distsync.asyncio, distsync.multiprocessing, distsync.threading

objects = {}

def use(kind, number, **options):
    obj = objects[kind, number] = USES[kind][0](number, **options)
    return USES[kind][1](obj)

def outcome(*arguments, **options):
    try:
        return use(*arguments, **options)
    except distsync.MismatchError as error:
        return str(error)

from kinds import USES

print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""

KINDS = """
import asyncio
import distsync, distsync.asyncio, distsync.multiprocessing, distsync.threading

def awaited(method):
    def run(obj):
        async def call():
            return await getattr(obj, method)()
        return asyncio.run(call())
    return run

USES = {
    "Semaphore": (
        lambda n, **options: distsync.threading.Semaphore(n, name="x", **options),
        lambda obj: obj.get_value(),
    ),
    "BoundedSemaphore": (
        lambda n, **options: distsync.threading.BoundedSemaphore(n, name="x", **options),
        lambda obj: (obj.acquire(), obj.release(), obj.get_value())[2],
    ),
    "multiprocessing.Semaphore": (
        lambda n, **options: distsync.multiprocessing.Semaphore(n, name="x", **options),
        lambda obj: (obj.acquire(), obj.release(), obj.get_value())[2],
    ),
    "asyncio.Semaphore": (
        lambda n, **options: distsync.asyncio.Semaphore(n, name="x", **options),
        lambda obj: (awaited("acquire")(obj), obj.release(), obj.twin.get_value())[2],
    ),
    "Barrier": (
        lambda n, **options: distsync.threading.Barrier(n, name="x", **options),
        lambda obj: (obj.n_waiting, obj.parties)[1],
    ),
    "multiprocessing.Barrier": (
        lambda n, **options: distsync.multiprocessing.Barrier(n, name="x", **options),
        lambda obj: (obj.reset(), obj.broken, obj.parties)[2],
    ),
    "asyncio.Barrier": (
        lambda n, **options: distsync.asyncio.Barrier(n, name="x", **options),
        lambda obj: (awaited("reset")(obj), obj.parties)[1],
    ),
    "DoubleBarrier": (
        lambda n, **options: distsync.DoubleBarrier(n, name="x", **options),
        lambda obj: (obj.n_inside, obj.parties)[1],
    ),
    "RateLimiter": (
        lambda n, **options: distsync.RateLimiter(n, burst=7, name="x", **options),
        lambda obj: (obj.acquire(), obj.rate)[1],
    ),
    "RateLimiter.burst": (
        lambda n, **options: distsync.RateLimiter(100, burst=n, name="x", **options),
        lambda obj: (obj.acquire(), obj.burst)[1],
    ),
    "IdGenerator": (
        lambda n, **options: distsync.IdGenerator(n, name="x", **options),
        lambda obj: (obj.next_id(), obj.block)[1],
    ),
    "IdGenerator.start": (
        lambda n, **options: distsync.IdGenerator(10, n, name="x", **options),
        lambda obj: (obj.next_id(), None)[1],
    ),
    "CountDownLatch": (
        lambda n, **options: distsync.CountDownLatch(n, name="x", **options),
        lambda obj: obj.count,
    ),
    "path": (
        lambda n, **options: distsync.threading.Semaphore(n, path="/parameters/x", **options),
        lambda obj: obj.get_value(),
    ),
}
"""
NAMES = re.findall(r'^    "([\w.]+)": \($', KINDS, re.MULTILINE)
LABEL = re.compile(r"of \S+ is \S+, not \S+, as long as it is used by ")


def names(error: str, theirs: int, ours: int) -> bool:
    """Return whether the error names these numbers, which may be floats."""
    return re.search(rf" is {theirs}(\.0)?, not {ours}(\.0)?, as long as it is used by ", error) is not None


@pytest.fixture
def shells(server: ServerProcess, namespace: str, tmp_path: Path) -> Iterator[Shells]:
    environment = {"DISTSYNC_HOSTS": server.hosts, "DISTSYNC_NAMESPACE": namespace, "DISTSYNC_SESSION_TIMEOUT": "6"}
    made = Shells(tmp_path, environment)
    yield made
    made.close()


@pytest.fixture
def start(shells: Shells, tmp_path: Path, namespace: str) -> Iterator[Start]:
    """Return a function that starts a program."""
    (tmp_path / "kinds.py").write_text(KINDS.replace("/parameters/", f"{namespace}-parameters/"))
    (tmp_path / "program.py").write_text(PROGRAM)
    programs: list[Program] = []

    def start() -> Program:
        program = Program(shells.start(tmp_path / "program.py"))
        assert program.process.stdout is not None
        assert program.process.stdout.readline() == "ready\n"
        programs.append(program)
        return program

    yield start
    for each in programs:
        if each.process.poll() is None:
            each.exit()


def sessions(server: ServerProcess) -> int:
    return int(server.figures()["zk_global_sessions"])


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(name, marks=() if name in ("Semaphore", "Barrier") else pytest.mark.slow("a session ends"))
        for name in NAMES
    ],
)
def test_number_of_a_killed_program_is_replaced_before_its_session_ends(
    start: Start, server: ServerProcess, kind: str
) -> None:
    old, new = start(), start()
    old(f"use({kind!r}, 2)")
    before = sessions(server)
    old.kill()
    new(f"use({kind!r}, 3)")
    assert sessions(server) == before + 1
    assert names(start()(f"outcome({kind!r}, 2)"), 3, 2)
    eventually(lambda: sessions(server) == before + 1)


@pytest.mark.parametrize("kind", NAMES)
def test_other_number_of_a_living_program_is_an_error_that_names_it(start: Start, kind: str) -> None:
    old, new = start(), start()
    old(f"use({kind!r}, 2)")
    error = new(f"outcome({kind!r}, 3)")
    assert LABEL.search(error), error
    assert f"{socket.gethostname()}:{old.process.pid}" in error
    assert "kinds.py:" in error
    old.exit()
    new(f"use({kind!r}, 3)")


@pytest.mark.parametrize("kind", NAMES)
def test_program_that_waits_takes_its_number_when_the_old_one_has_ended(start: Start, kind: str) -> None:
    old, new = start(), start()
    old(f"use({kind!r}, 2)")
    waiting = Running(lambda: new(f"use({kind!r}, 3, on_mismatch='wait')"))
    with pytest.raises(AssertionError, match="has not ended"):
        waiting.result(10 * UNIT)
    old.exit()
    waiting.result()
    assert names(start()(f"outcome({kind!r}, 2)"), 3, 2)


@pytest.mark.parametrize("kind", NAMES)
def test_program_that_adopts_uses_the_old_number_until_its_next_start(start: Start, kind: str) -> None:
    old, new = start(), start()
    expected = old(f"use({kind!r}, 2)")
    adopted = new(f"use({kind!r}, 3, on_mismatch='adopt')")
    assert adopted == expected or not isinstance(expected, int)
    assert names(start()(f"outcome({kind!r}, 4)"), 2, 4)
    old.exit()
    assert names(start()(f"outcome({kind!r}, 4)"), 2, 4)
    new.exit()
    newer = start()
    newer(f"use({kind!r}, 3, on_mismatch='adopt')")
    assert names(start()(f"outcome({kind!r}, 4)"), 3, 4)


@pytest.mark.slow("nine programs in turn")
@pytest.mark.parametrize("policy", ["wait", "adopt"])
def test_number_of_three_programs_is_changed_one_after_the_other(start: Start, policy: str) -> None:
    programs = [start() for _ in range(3)]
    for each in programs:
        assert each("use('Semaphore', 2)") == 2
    calls = []
    for each in programs:
        each.exit()
        replacement = start()
        calls.append((replacement, Running(lambda of=replacement: of(f"use('Semaphore', 3, on_mismatch={policy!r})"))))
        if policy == "adopt":
            calls[-1][1].result()
    for _, call in calls:
        call.result()
    if policy == "adopt":  # by and by: the first one that finds no user of the old number takes the new one
        for program, _ in calls:
            program.exit()
        calls = [(start(), call) for _, call in calls]
    assert [each("use('Semaphore', 3)") for each, _ in calls] == [3, 3, 3]


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize(("kind", "call"), [("Barrier", "wait"), ("DoubleBarrier", "enter")])
def test_waiter_of_a_killed_program_does_not_count_in_a_barrier_with_another_number(
    start: Start, server: ServerProcess, observer: Observer, namespace: str, kind: str, call: str
) -> None:
    old, new, other = start(), start(), start()
    old(f"use({kind!r}, 3)")
    before = sessions(server)
    waiting = Running(lambda: old(f"objects[{kind!r}, 3].{call}()"))
    eventually(lambda: any("-lock-" in path for path in observer.tree(namespace)))
    old.kill()
    with pytest.raises(ValueError):  # noqa: PT011 - no answer
        waiting.result()
    assert new(f"use({kind!r}, 2)") == other(f"use({kind!r}, 2)") == 2
    assert new(f"objects[{kind!r}, 2].n_waiting") == 0
    calls = [Running(lambda of=of: of(f"objects[{kind!r}, 2].{call}()")) for of in (new, other)]
    assert sorted(each.result() for each in calls) == ([0, 1] if call == "wait" else [True, True])
    eventually(lambda: sessions(server) == before + 1)


def test_ids_are_never_issued_again_when_block_or_start_is_changed(make_client: Make) -> None:
    issued: list[int] = []
    for block, start in ((10, 1), (3, 1), (7, 100), (7, 5), (10, 1), (1, 1)):
        for _ in range(2):
            client = make_client()
            ids = distsync.IdGenerator(block, start, name="x", client=client)
            issued += ids.next_ids(block + 2)
            client.close()
        assert issued[-1] >= start
    assert issued == sorted(set(issued))


def test_process_that_kept_a_block_when_the_parameters_were_changed_issues_no_id_twice(make_client: Make) -> None:
    clients = [make_client() for _ in range(2)]
    old = distsync.IdGenerator(10, name="x", client=clients[0])
    issued = old.next_ids(3)
    clients[0].run(old._core.user.end())  # as if its session had ended unnoticed
    new = distsync.IdGenerator(4, name="x", client=clients[1])
    issued += new.next_ids(9)
    with pytest.raises(MismatchError, match="is 4, not 10"):
        old.next_id()
    assert len(set(issued)) == 12


def test_latch_with_a_changed_count_begins_again_closed(make_client: Make) -> None:
    for before, after in ((2, 3), (2, 0), (0, 3)):
        client, other = make_client(), make_client()
        name = f"x{before}{after}"
        latch = distsync.CountDownLatch(before, name=name, client=client)
        for _ in range(before):
            latch.count_down()
        assert latch.wait(0)
        client.close()
        changed = distsync.CountDownLatch(after, name=name, client=other)
        assert changed.count == after
        assert changed.wait(0) == (after == 0)
        assert [changed.count_down() for _ in range(after)] == [*reversed(range(after))]
        assert changed.wait(0)


def test_limiter_with_a_changed_burst_keeps_its_tokens_up_to_the_new_burst(make_client: Make) -> None:
    for burst, taken, left in ((10, 4, 6), (4, 1, 3), (8, 0, 3)):
        client = make_client()
        limiter = distsync.RateLimiter(1e-6, burst=burst, name="x", client=client)
        assert not taken or limiter.try_acquire(taken)
        assert not limiter.try_acquire(left + 0.5)
        client.close()
    assert distsync.RateLimiter(1e-6, burst=8, name="x", client=make_client()).try_acquire(left - 0.5)


def test_number_of_a_collected_object_of_this_process_is_replaced(client: Client) -> None:
    for number in (2, 3, 4):
        slots = distsync.Semaphore(number, name="x")
        assert slots.acquire()
        slots.release()
        assert slots.get_value() == number
        del slots
        gc.collect()


def test_two_objects_of_this_process_with_other_numbers_are_an_error_that_says_so(client: Client) -> None:
    first, second = distsync.Semaphore(2, name="x"), distsync.Semaphore(3, name="x")
    assert first.acquire()
    with pytest.raises(MismatchError, match="is 2, not 3, as long as it is used by another object of this process"):
        second.acquire()
    first.release()


def test_dropped_object_is_no_user_any_more(client: Client, observer: Observer) -> None:
    for number in range(20):
        slots = distsync.Semaphore(2, name=f"x{number}")
        slots.get_value()
        del slots
        gc.collect()
    eventually(lambda: sum("/u_" in path for path in observer.tree(f"{client.namespace}/users")) < 5)


def test_registration_costs_two_requests_at_the_first_use_and_none_later(make_client: Make) -> None:
    for each in (make_client(), make_client()):
        each.sync()
        slots = distsync.Semaphore(2, name="x", client=each)
        first, later = spent(each, slots.get_value), spent(each, slots.get_value)
        assert later == (2, 1)
    assert first == (4, 2)


def test_unnamed_object_registers_nothing(client: Client, observer: Observer) -> None:
    slots = distsync.Semaphore(2)
    slots.get_value()
    pickle.loads(pickle.dumps(slots)).get_value()
    assert not [path for path in observer.tree(client.namespace) if "/users" in path]


def test_process_whose_session_ended_registers_again(client: Client, make_client: Make) -> None:
    slots = distsync.Semaphore(2, name="x")
    slots.get_value()
    before = client.session_id
    expire(client)
    eventually(lambda: client.session_id not in (None, before))
    assert slots.get_value() == 2
    with pytest.raises(MismatchError, match="is 2, not 3"):
        distsync.Semaphore(3, name="x", client=make_client()).get_value()


def test_waiting_acquire_returns_false_at_its_timeout(client: Client, make_client: Make) -> None:
    slots = distsync.Semaphore(2, name="x")
    slots.get_value()
    other = distsync.Semaphore(3, name="x", client=make_client(), on_mismatch="wait")
    assert not other.acquire(timeout=5 * UNIT)
    assert not other.acquire(blocking=False)


def test_adopted_number_bounds_a_bounded_semaphore(client: Client, make_client: Make) -> None:
    slots = distsync.threading.BoundedSemaphore(2, name="x")
    slots.get_value()
    other = distsync.threading.BoundedSemaphore(3, name="x", client=make_client(), on_mismatch="adopt")
    with pytest.raises(distsync.OverReleaseError):
        other.release()


@pytest.mark.parametrize("kind", ["Array", "RawArray", "Value", "RawValue"])
def test_shared_memory_of_a_killed_program_begins_again_with_another_size(start: Start, kind: str) -> None:
    arguments = {"Array": ("'i', 2", "'i', [1, 2, 3]"), "Value": ("'i', 5", "'q', 7")}[kind.removeprefix("Raw")]
    old, new = start(), start()
    of = f"distsync.multiprocessing.{kind}"
    part = "[:]" if "Array" in kind else ".value"
    old(f"[objects.update(a={of}({arguments[0]}, name='x')), objects['a']{part}]")
    waiting = Running(lambda: new(f"{of}({arguments[1]}, name='x', on_mismatch='wait'){part}"))
    with pytest.raises(AssertionError, match="has not ended"):
        waiting.result(10 * UNIT)
    old.kill()
    assert waiting.result() == ([1, 2, 3] if "Array" in kind else 7)
    for number in ("'i'", "'q'"):
        with pytest.raises(ConfigurationError, match="another size"):
            getattr(distsync.multiprocessing, kind)(number[1], 1, on_mismatch="adopt")


def test_invalid_option_is_refused_and_a_valid_one_is_pickled(client: Client) -> None:
    with pytest.raises(ConfigurationError, match="'error', 'wait', 'adopt'"):
        distsync.Semaphore(2, name="x", on_mismatch="no")
    for layout, number in (("kazoo", 2), ("distsync", 0)):
        with pytest.raises(ConfigurationError, match="on_mismatch"):
            distsync.Semaphore(number, name="x", layout=layout, on_mismatch="wait")
    slots = pickle.loads(pickle.dumps(distsync.Semaphore(2, name="x", on_mismatch="adopt")))
    assert slots._on_mismatch == "adopt"
