"""asyncio for CPython's tests of asyncio: an iteration of its loop ends when nothing is outstanding on
the client.

Those tests let the loop iterate once and then look; here, what they look for comes over a network.
So a sleep, or a brief run of the loop, first waits until all requests are answered and none
follows; and a timeout of up to 10 ms is extended. Nothing else is changed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import wrapt

from distsync._client.client import Client
from distsync._protocols.steps import Exists
from helpers.sample_protocols import ask
from helpers.timing import PATIENCE

TURNS = 10
"""A task that is woken from another thread has gone on, and so have those that it wakes."""

LONGER = 100
"""Factor for timeouts of up to 10 ms."""

FAR_S = 0.9
"""Seconds: CPython's timers are due before that, those of calls that wait for the server, or clean up, are not."""


class Calm:
    """Counts how often in a row nothing was sent and nothing came, from one look to the next."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._traffic = self._so_far()
        self._times = 0
        #: How often it looked, with a request each.
        self.looks = 0

    def _so_far(self) -> int:
        statistics = self._client.statistics()
        return sum(statistics.requests.values()) + statistics.events

    def comes(self) -> bool:
        """All that was sent is answered: a request went there and back that was sent after all others, those of the
        keeper too; an answer overtakes no other, and no event. Whether it was calm often enough."""
        answered = threading.Event()
        self.looks += 1

        async def last() -> None:
            try:
                await ask(Exists("/"))
            finally:
                answered.set()

        self._client.background(last())
        assert answered.wait(PATIENCE), "the server does not answer"
        before, self._traffic = self._traffic, self._so_far()
        self._times = self._times + 1 if self._traffic == before + 1 else 0
        return self._times > 1


async def settle(client: Client) -> None:
    """Wait until every task that can continue has continued."""
    calm = Calm(client)
    while not calm.comes():
        for _ in range(TURNS):
            await asyncio.sleep(0)


class PatientLoop(wrapt.ObjectProxy):  # type: ignore[misc]
    """A loop whose timers begin when nothing is under way."""

    def __init__(self, wrapped: asyncio.AbstractEventLoop, client: Client) -> None:
        super().__init__(wrapped)
        self._self_client = client

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        async def later() -> None:
            await settle(self._self_client)
            self.__wrapped__.call_later(delay, callback, *args)

        self._self_task = self.__wrapped__.create_task(later())


def patient(module: ModuleType, client: Client) -> ModuleType:
    """Return the contents of ``module``, with longer timeouts."""
    made = ModuleType(module.__name__)
    made.__dict__.update({name: getattr(module, name) for name in dir(module) if not name.startswith("__")})

    async def sleep(delay: float, result: Any = None) -> Any:
        if not hasattr(asyncio.get_running_loop(), "advance_time"):
            await settle(client)
        return await asyncio.sleep(delay, result)

    made.sleep = sleep  # type: ignore[attr-defined]
    made.get_running_loop = lambda: PatientLoop(asyncio.get_running_loop(), client)  # type: ignore[attr-defined]
    if hasattr(asyncio, "timeout"):
        made.timeout = lambda seconds: asyncio.timeout(seconds * LONGER)  # type: ignore[attr-defined]
    return made


def be_patient(patch: pytest.MonkeyPatch, utils: ModuleType, client: Client) -> None:
    """Python 3.10's tests have loops with a clock of their own, that jumps from one timer to the next."""

    test_loop: Any = utils.TestLoop  # that of the module is ours, soon

    class JumpingLoop(test_loop):  # type: ignore[misc]
        ends = False

        def close(self) -> None:
            """As asyncio.run, and the loops of later Pythons' tests: what a test that failed has left is cancelled."""
            self.ends = True
            pending = asyncio.all_tasks(self)
            for task in pending:
                task.cancel()
            try:
                if pending:
                    self.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            finally:
                super().close()

        def advance_time(self, advance: float) -> None:
            calm = Calm(client)
            while not calm.comes():
                for _ in range(TURNS):
                    asyncio.BaseEventLoop._run_once(self)  # type: ignore[attr-defined]
            super().advance_time(advance)

        def call_at(self, when: float, *given: Any, **named: Any) -> asyncio.TimerHandle:
            far = self.ends or when > self.time() + FAR_S
            kind = asyncio.BaseEventLoop if far else test_loop
            return kind.call_at(self, when, *given, **named)  # type: ignore[no-any-return]

        def _run_once(self) -> None:
            if not self._ready:
                time.sleep(0.001)  # its selector does not
            (asyncio.BaseEventLoop if self.ends else test_loop)._run_once(self)

    patch.setattr(utils, "TestLoop", JumpingLoop)
    patch.setattr(utils, "run_briefly", lambda loop: loop.run_until_complete(settle(client)))
