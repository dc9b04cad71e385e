"""Group commit: concurrent calls of a process share requests, and each gets its own error."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from helpers.remote_functions import general as remote
from helpers.sample_protocols import ask
from helpers.timing import PATIENCE, UNIT, eventually
from helpers.worker_processes import Running, credentials, expire, results

import distsync
from distsync._protocols import group_commit
from distsync._protocols.steps import Connected, Delete
from distsync._wire.codes import OpCode
from distsync.errors import ClientClosedError, LockLostError, PayloadTooLargeError
from distsync.queue import Full, Queue, ShutDown, SimpleQueue
from distsync.testing.faulty_proxy import Proxy

MANY = 40


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make queued calls wait for as long as the tests block the first one."""
    monkeypatch.setattr(group_commit, "PATIENCE_S", 10 * PATIENCE)


@pytest.fixture
def proxied(make_client: Callable[..., Any], proxy: Proxy) -> Iterator[Any]:
    made = make_client(hosts=proxy.hosts)
    made.run(ask(Connected()))
    yield made
    made.close()


@contextmanager
def queued(client: Any, proxy: Proxy, committer: Any, calls: list[Callable[[], object]]) -> Iterator[list[Running]]:
    """Send the first call and block its reply; queue the others behind it."""
    proxy.blackhole()
    running = []
    for number, call in enumerate(calls):
        running.append(Running(call))
        eventually(lambda number=number: not committer().idle and len(committer().waiting) == number)
    yield running
    proxy.heal()


def requests(client: Any) -> int:
    return int(client.statistics().requests.get("Multi", 0))


def queue_of(client: Any, **options: Any) -> Queue[Any]:
    made: Queue[Any] = Queue(name="q", client=client, **options)
    made.put("first")
    assert made.get() == "first"
    return made


@contextmanager
def at_signal(number: int, handler: Callable[[], object]) -> Iterator[None]:
    before = signal.signal(number, lambda *args: handler())
    try:
        yield
    finally:
        signal.signal(number, before)


def test_signal_handler_may_put_while_its_thread_is_blocked_in_a_put(
    proxied: Any, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "PATIENCE_S", UNIT)
    queue = SimpleQueue[str](name="s", client=proxied)
    queue.put("first")
    with at_signal(signal.SIGUSR1, lambda: queue.put("in the handler")):
        proxy.blackhole()
        timers = [
            threading.Timer(4 * UNIT, os.kill, (os.getpid(), signal.SIGUSR1)),
            threading.Timer(12 * UNIT, proxy.heal),
        ]
        for timer in timers:
            timer.start()
        queue.put("outside")
        for timer in timers:
            timer.join()
    assert sorted(queue.get() for _ in range(3)) == ["first", "in the handler", "outside"]


def test_excess_task_done_in_a_batch_whose_reply_is_lost_raises_once(
    proxied: Any, make_client: Callable[..., Any], proxy: Proxy
) -> None:
    queue, theirs = queue_of(proxied), Queue[int](name="q", client=make_client())
    queue.task_done()
    queue.put_many(range(4))
    assert len(queue.get_many(4)) == 4
    with queued(proxied, proxy, lambda: queue._core.dones, [queue.task_done] * 4) as running:
        theirs.task_done()
        first = proxy.drop_next_reply(OpCode.MULTI)
    assert first.wait(PATIENCE)
    second = proxy.drop_next_reply(OpCode.MULTI)
    outcomes = [remote.catch(one.result) for one in running]
    assert sorted(str(each) for each in outcomes) == ["None"] * 3 + ["ValueError"]
    assert second.is_set()
    theirs.join()


def test_puts_queued_behind_one_in_flight_are_sent_as_one_request(proxied: Any, proxy: Proxy) -> None:
    queue = queue_of(proxied)
    before = requests(proxied)
    with queued(proxied, proxy, lambda: queue._core.puts, [lambda n=n: queue.put(n) for n in range(MANY)]) as running:
        pass
    results(running)
    assert requests(proxied) - before == 2
    assert sorted(queue.get() for _ in range(MANY)) == list(range(MANY))
    assert queue.unfinished_tasks == MANY + 1


def test_sequential_puts_of_one_thread_cost_one_request_each(proxied: Any) -> None:
    queue = queue_of(proxied)
    before = requests(proxied)
    for number in range(5):
        queue.put(number)
    assert requests(proxied) - before == 5


def test_queued_puts_that_exceed_a_batch_are_sent_in_several_requests(proxied: Any, proxy: Proxy) -> None:
    queue = queue_of(proxied)
    before = requests(proxied)
    large = "x" * 400_000
    with queued(proxied, proxy, lambda: queue._core.puts, [lambda: queue.put(large) for _ in range(6)]) as running:
        pass
    results(running)
    assert requests(proxied) - before == 1 + 3  # two at a time
    assert [len(queue.get()) for _ in range(6)] == [400_000] * 6


def test_oversized_item_fails_only_its_own_put(proxied: Any, proxy: Proxy) -> None:
    queue = queue_of(proxied)
    with queued(proxied, proxy, lambda: queue._core.puts, [lambda n=n: queue.put(n) for n in range(3)]) as running:
        with pytest.raises(PayloadTooLargeError):
            queue.put("x" * 2_000_000)
    results(running)
    assert queue.qsize() == 3


def test_concurrent_put_nowait_never_exceed_the_bound(client: Any) -> None:
    queue = queue_of(client, maxsize=2)
    putting = [Running(queue.put_nowait, number) for number in range(5)]
    outcomes = []
    for one in putting:
        try:
            outcomes.append(one.result())
        except Full:
            outcomes.append(Full)
    assert outcomes.count(None) <= 2
    assert queue.qsize() == outcomes.count(None)


def test_shutdown_raises_in_each_queued_put(proxied: Any, proxy: Proxy, make_client: Callable[..., Any]) -> None:
    queue = queue_of(proxied)
    calls = [lambda n=n: queue.put(n) for n in range(4)]
    with queued(proxied, proxy, lambda: queue._core.puts, calls) as running:  # type: ignore[arg-type]
        Queue(name="q", client=make_client()).shutdown()
    for one in running:
        with pytest.raises(ShutDown):
            one.result()
    assert queue.qsize() == 0


def test_put_interrupted_before_it_was_sent_has_no_effect_and_the_others_succeed(proxied: Any, proxy: Proxy) -> None:
    queue = queue_of(proxied)
    threads: dict[int, int] = {}

    def put(number: int) -> None:
        threads[number] = threading.get_ident()
        queue.put(number)

    calls = [lambda n=n: put(n) for n in range(4)]
    with queued(proxied, proxy, lambda: queue._core.puts, calls) as running:  # type: ignore[arg-type]
        proxied.interrupt(threads[2], KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            running[2].result()
    results([running[0], running[1], running[3]])
    assert sorted(queue.get() for _ in range(3)) == [0, 1, 3]


def test_put_with_a_timeout_is_not_batched(proxied: Any, proxy: Proxy) -> None:
    queue = queue_of(proxied)
    with queued(proxied, proxy, lambda: queue._core.puts, [lambda n=n: queue.put(n) for n in range(2)]) as running:
        timely = Running(queue.put, "timely", True, 60.0)
        nowait = Running(queue.put_nowait, "now")
        eventually(lambda: proxied.statistics().requests["Multi"] >= 4)
        assert len(queue._core.puts.waiting) == 1
    results(running)
    timely.result()
    assert len(queue._core.puts.waiting) == 0
    try:
        nowait.result()
    except (Full, distsync.OutcomeUnknownError):
        pass
    assert queue.qsize() >= 3


def test_closing_the_client_raises_in_each_queued_put(proxied: Any, proxy: Proxy) -> None:
    queue = queue_of(proxied)
    calls = [lambda n=n: queue.put(n) for n in range(4)]
    session = credentials(proxied)
    with queued(proxied, proxy, lambda: queue._core.puts, calls) as running:  # type: ignore[arg-type]
        proxied.close()
    for one in running:
        with pytest.raises(ClientClosedError):
            one.result()
    expire(session)  # the server was not informed that the session is closed


def test_lost_reply_to_a_batch_of_puts_neither_loses_nor_duplicates_an_item(proxied: Any, proxy: Proxy) -> None:
    queue = queue_of(proxied)
    with queued(proxied, proxy, lambda: queue._core.puts, [lambda n=n: queue.put(n) for n in range(10)]) as running:
        first = proxy.drop_next_reply(14)
    first.wait()
    second = proxy.drop_next_reply(14)
    results(running)
    second.wait(0)
    proxy.disarm()
    assert sorted(queue.get() for _ in range(10)) == list(range(10))
    assert queue.qsize() == 0


def test_task_dones_queued_behind_one_in_flight_are_sent_as_one_request(proxied: Any, proxy: Proxy) -> None:
    queue = queue_of(proxied)
    queue.task_done()
    queue.put_many(range(10))
    assert len(queue.get_many(10)) == 10
    before = requests(proxied)
    with queued(proxied, proxy, lambda: queue._core.dones, [queue.task_done] * 10) as running:
        pass
    results(running)
    assert requests(proxied) - before == 2
    assert queue.unfinished_tasks == 0
    with pytest.raises(ValueError, match="too many"):
        queue.task_done()


def test_concurrent_dones_of_deliveries_share_a_request_and_a_lost_claim_fails_only_its_own(
    proxied: Any, proxy: Proxy, make_client: Callable[..., Any]
) -> None:
    queue: Any = distsync.JoinableQueue(name="j", client=proxied)
    queue.put_many(range(6))
    deliveries = [queue.claim() for _ in range(6)]
    before = requests(proxied)
    with queued(proxied, proxy, lambda: queue._claims.endings, [each.done for each in deliveries[:3]]) as running:
        pass
    results(running)
    assert requests(proxied) - before == 2
    make_client().run(ask(Delete(deliveries[4]._claimed.path)))
    with queued(proxied, proxy, lambda: queue._claims.endings, [each.done for each in deliveries[3:]]) as running:
        pass
    running[0].result()
    with pytest.raises(LockLostError):
        running[1].result()
    running[2].result()
