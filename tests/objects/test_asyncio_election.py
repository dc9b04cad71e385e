"""Election of distsync.asyncio: tasks lead, wait for notifications, and watch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.timing import PATIENCE, UNIT

from distsync import LockLostError, NotHeldError, PayloadPickleError, recipes
from distsync._client.client import Client
from distsync._protocols.steps import Signal
from distsync.asyncio import Condition, Election, Lock

pytestmark = pytest.mark.usefixtures("no_guards")


def in_loop(work: Callable[[], Awaitable[Any]]) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(work(), PATIENCE)

    return asyncio.run(limited())


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(UNIT / 10)


def test_it_is_a_condition_and_the_threads_election(client: Client, other: Client) -> None:
    async def main() -> None:
        election, seen = Election({"port": 80}, name="e"), recipes.Election(name="e", client=other)
        assert isinstance(election, Condition)
        assert isinstance(election, Lock)
        assert election.leader is None
        async with election:
            assert election.is_leader
            assert election.locked()
            assert election.leader == await election.find_leader() == await election.wait_for_leader(0)
            leader = await asyncio.to_thread(seen.wait_for_leader, PATIENCE)
            assert leader is not None
            assert (leader.data, leader.fencing_token) == ({"port": 80}, election.fencing_token)
            assert [each.data for each in await election.candidates()] == [{"port": 80}]
        assert await election.find_leader() is None
        assert await election.wait_for_leader(UNIT) is None

    in_loop(main)


def test_tasks_lead_in_turn_and_each_term_has_its_own_token(client: Client) -> None:
    tokens: list[int] = []

    async def main() -> None:
        election = Election(name="e")

        async def lead() -> None:
            async with election:
                tokens.append(election.fencing_token)
                await asyncio.sleep(0)

        await asyncio.gather(*(lead() for _ in range(4)))

    in_loop(main)
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 4


def test_leader_waits_until_a_later_leader_notifies_it(client: Client, other: Client) -> None:
    async def main() -> None:
        first, second = Election("first", name="e"), Election("second", name="e", client=other)
        waiting = asyncio.Event()

        async def lead_and_wait() -> None:
            async with first:
                before = first.fencing_token
                waiting.set()
                assert await first.wait()
                assert first.fencing_token > before
                assert first.is_leader

        task = asyncio.create_task(lead_and_wait())
        await waiting.wait()
        async with second:
            assert (await second.find_leader()).data == "second"  # type: ignore[union-attr]
            second.notify()
        await task
        assert await first.find_leader(sync=True) is None
        for refused in (first.notify, first.notify_all):
            with pytest.raises(RuntimeError):
                refused()
        with pytest.raises(RuntimeError):
            await first.wait()

    in_loop(main)


def test_on_change_is_called_in_the_loop_with_leaders_and_announcements(client: Client, other: Client) -> None:
    changes: list[Any] = []

    async def main() -> None:
        loop, election, seen = asyncio.get_running_loop(), Election("a", name="e"), Election(name="e", client=other)

        def changed(before: Any, now: Any) -> None:
            assert asyncio.get_running_loop() is loop
            changes.append([each and (each.data, each.announcement) for each in (before, now)])

        seen.on_change = changed
        assert seen.on_change is changed
        assert await seen.find_leader() is None
        async with election:
            await until(lambda: len(changes) == 1)
            await election.announce("done")
            await until(lambda: len(changes) == 2)
        await until(lambda: len(changes) == 3)
        seen.on_change = None
        assert seen.on_change is None

    in_loop(main)
    assert changes == [[None, ("a", None)], [("a", None), ("a", "done")], [("a", "done"), None]]


def test_invalid_calls_raise(client: Client) -> None:
    election = Election(name="e")
    with pytest.raises(RuntimeError, match="no running event loop"):
        election.on_change = print
    with pytest.raises(PayloadPickleError, match="the data of a candidate"):
        Election({1}, name="e")

    async def main() -> None:
        with pytest.raises(NotHeldError):
            await election.announce(1)
        with pytest.raises(NotHeldError):
            election.release()
        async with election:
            with pytest.raises(PayloadPickleError, match="an announcement"):
                await election.announce({1})

    in_loop(main)


def test_run_leads_for_one_call_also_of_a_coroutine_function(client: Client) -> None:
    async def main() -> None:
        election = Election(name="e")

        async def led(number: int) -> tuple[int, bool]:
            await asyncio.sleep(0)
            return number, election.is_leader

        assert await election.run(led, 7) == (7, True)
        assert await election.run(lambda: election.is_leader) is True
        assert not election.is_leader
        with pytest.raises(LookupError):
            await election.run({}.__getitem__, "nothing")
        assert await election.find_leader() is None

    in_loop(main)


def test_cancelled_candidate_leaves_no_znode_and_loss_is_raised_at_the_end(
    client: Client, other: Client, observer: Observer
) -> None:
    async def main() -> None:
        election, later = Election(name="e"), Election(name="e", client=other)
        await election.acquire()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(later.acquire(), UNIT)
        while len(await election.candidates()) > 1:  # a cancelled call does not wait for the deletion
            await asyncio.sleep(UNIT / 10)
        election.release()
        await later.acquire()
        observer.kazoo.delete((await later.candidates())[0].owner.path)
        with pytest.raises(LockLostError):
            await later.__aexit__(None, None, None)
        while await election.find_leader(sync=True) is not None:
            await asyncio.sleep(UNIT / 10)

    in_loop(main)


def test_leader_is_read_while_another_task_is_reading_it(client: Client) -> None:
    """The property waited for the other task, which continues only after it: until the session timeout."""

    async def main() -> None:
        election = Election("a", name="e")
        still_reading = 0
        async with election:
            for turns in range(1, 4):
                election.twin._core.leader.forget()
                reading = asyncio.create_task(election.find_leader())
                for _ in range(turns):
                    await asyncio.sleep(0)
                still_reading += not reading.done()  # a reply may come early
                leader = election.leader
                assert leader is not None
                assert leader.data == "a"
                assert await reading == leader
        assert still_reading

    in_loop(main)


def test_later_change_is_seen_by_a_task_whose_read_was_overtaken(client: Client, other: Client) -> None:
    async def main() -> None:
        election, later = Election(name="e"), recipes.Election("b", name="e", client=other)
        waiting = asyncio.create_task(election.wait_for_leader())
        await asyncio.sleep(0)
        assert election.leader is None
        with later:
            leader = await waiting
            assert leader is not None
            assert leader.data == "b"

    in_loop(main)


def test_read_that_must_not_wait_succeeds_beside_that_of_another_task(client: Client) -> None:
    """It waits for the other read, as for a reply of its own. It failed at once, or showed no leader."""

    async def main() -> None:
        election = Election("a", name="e")
        async with election:
            for read in (election.find_leader(timeout=0), election.wait_for_leader(0)):
                election.twin._core.leader.forget()
                reading = asyncio.create_task(election.find_leader())
                await asyncio.sleep(0)
                leader = await read
                assert leader is not None
                assert leader == await reading

    in_loop(main)


def test_wait_that_blocks_a_read_in_progress_does_not_wait_for_it(client: Client) -> None:
    """As in a signal handler that interrupts the read: it waited for the leader until its timeout, or without end."""

    async def main() -> None:
        election = Election("a", name="e")
        async with election:
            for read in (election.twin.wait_for_leader, election.twin.find_leader):
                election.twin._core.leader.forget()
                reading = asyncio.create_task(election.find_leader())
                await asyncio.sleep(0)
                leader = read(timeout=PATIENCE / 10)  # blocks the event loop
                assert leader is not None
                assert leader == await reading

    in_loop(main)


def test_read_that_must_not_wait_succeeds_before_leader_is_published(client: Client) -> None:
    """A new leader waits for its LEADER, as for a reply of its own. It failed at once, or showed no leader."""

    async def main() -> None:
        election = Election("a", name="e")
        async with election:
            core = election.twin._core
            (term,) = core.terms.values()
            for read in (election.find_leader(timeout=0), election.wait_for_leader(0)):
                core.leader.forget()
                term.published = Signal()
                reading = asyncio.create_task(read)
                for _ in range(5):
                    await asyncio.sleep(0)
                term.published.fire()
                leader = await reading
                assert leader is not None
                assert leader.data == "a"

    in_loop(main)
