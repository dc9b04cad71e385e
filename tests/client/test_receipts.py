"""Receipts of a process on a server: none is lost with the call that created it; cancellations leave no more."""

from __future__ import annotations

import asyncio
import random

import pytest
from conftest import RECEIPTS
from helpers.leak_census import Observer
from helpers.sample_protocols import ask
from helpers.timing import UNIT, eventually

import distsync.asyncio as tasks
from distsync import Counter
from distsync._client.client import Client
from distsync._protocols.receipts import Receipts
from distsync._protocols.steps import Delete, Exists
from distsync.errors import NoNodeError


@pytest.fixture
def receipts(client: Client) -> Receipts:
    return Counter(name="c")._receipts


def alive(observer: Observer, namespace: str) -> set[str]:
    return {path for path in observer.ephemerals(namespace) if RECEIPTS in path}


def test_failed_call_keeps_the_receipt_that_it_created(
    client: Client, receipts: Receipts, namespace: str, observer: Observer
) -> None:
    """Its ephemeral child was deleted with what the call had created, and so the server deleted the receipt in use."""
    with pytest.raises(NoNodeError):
        client.run(receipts.commit(Delete(f"{namespace}/none")))
    for _ in range(20):
        client.run(ask(Exists("/")))  # the clean-up runs in the background
    assert alive(observer, namespace) == {f"{each.path}/alive" for each in receipts.free}
    assert len(receipts.free) == 1


@pytest.mark.slow_on("zookeeper")
def test_cancelled_calls_leave_no_more_receipts_than_ran_at_once(
    client: Client, receipts: Receipts, namespace: str, observer: Observer
) -> None:
    async def storm(rounds: int) -> None:
        rng, items = random.Random(rounds), tasks.Queue[int](name="items")
        for number in range(10):
            await items.put(number)
        for _ in range(rounds):
            getting = [asyncio.create_task(items.get()) for _ in range(10)]
            await asyncio.sleep(rng.random() * UNIT / 5)
            for task in getting:
                task.cancel()
            for item in await asyncio.gather(*getting, return_exceptions=True):
                if isinstance(item, int):
                    await items.put(item)

    for rounds in (10, 20):
        asyncio.run(storm(rounds))
        eventually(lambda: alive(observer, namespace) == {f"{path}/alive" for path in receipts._existing})
        assert len(receipts._existing) <= 25
