"""What runs in a worker process of a pool.

Rules for this file: the main thread runs nothing but the tasks, so that signals and interrupts are theirs. Claiming
tasks and putting answers is done by two protocols that the client's keeper drives; one thread listens to the parent.

How many tasks are claimed at once follows from how long they took: as many as are done in `BATCH_WINDOW_S`. Those that
are not begun when the one before them takes longer than that go back, for another worker to have.

The next task begins while the answers of those before it are on their way. But a task that was delivered before begins
alone, and is answered before the next one begins: it may be the one that kills workers, or have suffered by that one.
And as long as a worker has such a task it claims no other.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from multiprocessing import connection, parent_process
from multiprocessing import pool as _stdlib
from typing import Any, NamedTuple

from distsync._client import default_client, lifecycle, session_handover
from distsync._client.client import Client
from distsync._client.contender_info import describe
from distsync._client.settings import Settings
from distsync._protocols.pool.callers import remove_caller, sweep
from distsync._protocols.pool.tasks import DONE, MAX_CLAIMED, REFUSED, PoolCore, task_of
from distsync._protocols.queues.claim_layout import ClaimedItem
from distsync._protocols.receipts import Receipts
from distsync._protocols.steps import Signal, Wait
from distsync.errors import (
    ClientClosedError,
    CorruptNodeError,
    NoNodeError,
    OutcomeUnknownError,
    PayloadPickleError,
    PayloadRefusedError,
    PayloadTooLargeError,
    ShutDown,
)
from distsync.multiprocessing._task_codec import Encoder

#: Seconds of work that a worker claims at once.
BATCH_WINDOW_S = 0.1
#: Seconds between two looks whether the parent lives, and whether a caller is dead.
POLL_S = 1.0
#: Seconds that an end may take which cannot wait for the ensemble.
LAST_S = 5.0

DRAIN, TERMINATE, READY, FAILED = "drain", "terminate", "ready", "failed"
"""What parent and worker tell each other: go when the task at hand is done; go at once; tasks are welcome; I cannot."""


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker process is told when it starts."""

    settings: Settings = field(repr=False)
    path: str
    limit_bytes: int
    max_deliveries: int
    initializer: Callable[..., Any] | None = None
    initargs: Iterable[Any] = ()
    maxtasks: int | None = None
    #: The GUID of the caller that started it, if one did.
    caller: str | None = None
    #: The pool is that caller's alone.
    is_private: bool = False
    #: The client is to be the process's default one.
    default: bool = True


class ClaimedTask(NamedTuple):
    """A task that was claimed, and what was put."""

    delivery: ClaimedItem
    payload: bytes


class FinishedTask(NamedTuple):
    """A task that was done, and its answer."""

    delivery: ClaimedItem
    kind: str
    payload: bytes


def core_of(client: Client, path: str) -> PoolCore:
    """What this process knows about the pool."""
    directory = f"{client.namespace.rstrip('/')}/receipts"
    return PoolCore(path, client.local(directory, partial(Receipts, directory)))


def client_with(settings: Settings) -> Client:
    """A new client with the same settings."""
    return Client(**{each.name: getattr(settings, each.name) for each in fields(settings)})


def work(spec: WorkerSpec, control: Any) -> None:
    """The target of a worker process: it works until it is told to go, or its parent is dead."""
    client = client_with(spec.settings)
    if spec.default:
        default_client.set_default(client)
    try:
        Worker(spec, client, control).run()
    finally:
        default_client.close_default()
        client.close()
        control.close()


class Worker:
    """A process that works on the tasks of one pool."""

    def __init__(self, spec: WorkerSpec, client: Client, control: Any) -> None:
        self._spec, self._client, self._control = spec, client, control
        self._encoder = Encoder(spec.settings, spec.limit_bytes)
        self._changed = threading.Condition()
        self._waiting: deque[ClaimedTask] = deque()
        self._ended: deque[FinishedTask] = deque()
        self._putting = 0  # answers that are on their way
        self._is_careful = False
        self._busy_since: float | None = None
        self._seconds = BATCH_WINDOW_S * 2  # of a task, about
        self._left = spec.maxtasks
        self._draining = self._over = False
        self._wake = Signal()  # of the one who sends
        self._appetite = Signal()  # of the one who fetches
        self._all_sent = threading.Event()
        self._failure: BaseException | None = None
        self._is_orphan = self._is_going = False
        self._parent = os.getppid()

    def run(self) -> None:
        """Tasks are worked on until it is time to go; all that were begun are answered."""
        signal.signal(signal.SIGTERM, lambda *_: self.drain())
        if self._spec.caller is None:  # Ctrl-C is for the command that started it to obey
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._prepare()
        except BaseException as error:
            if self._is_going:
                self._wait_for_end()
            self._report(FAILED, f"{type(error).__name__}: {error}")
            raise
        self._report(READY)
        self._client.background(self._kept(self._fetch()))
        self._client.background(self._kept(self._send()))
        try:
            while (work := self._next()) is not None:
                self._execute(work)
        finally:
            if self._is_going:
                self._wait_for_end()
            self._leave()

    def _prepare(self) -> None:
        """The first task may come."""
        threading.Thread(target=self._listen, name="distsync-worker", daemon=True).start()
        if self._spec.initializer is not None:
            self._spec.initializer(*self._spec.initargs)
        self._core = core_of(self._client, self._spec.path)
        self._core.znodes.may_make = not self._spec.is_private
        self._client.run(self._core.look())

    def drain(self) -> None:
        """It goes when the task at hand is done. Safe in a signal handler."""
        with self._changed:
            self._draining = True
            self._changed.notify_all()
        self._poke()

    def _report(self, kind: str, more: str | None = None) -> None:
        try:
            self._control.send((kind, more))
        except OSError:  # the parent is dead, as whoever listens learns too
            pass

    # ---- in the main thread

    def _next(self) -> ClaimedTask | None:
        """The next task; None: it is time to go."""
        with self._changed:
            while not (self._may_begin() or self._draining or self._failure):
                self._changed.wait()
            if self._failure is not None:
                self._report(FAILED, f"{type(self._failure).__name__}: {self._failure}")
                raise self._failure
            if self._draining or self._left == 0:
                return None
            self._busy_since = time.monotonic()
            work = self._waiting.popleft()
            self._is_careful = work.delivery.label.deliveries > 1
            return work

    def _may_begin(self) -> bool:
        """There is a task, and neither it nor the one before it kills workers, as far as anybody knows; or there is
        no answer that would be lost."""
        if not self._waiting:
            return False
        careful = self._is_careful or self._is_repeated(0)
        return not (careful and (self._ended or self._putting))

    def _is_repeated(self, place: int) -> bool:
        """Whether the task at this place of those that wait was delivered before."""
        try:
            return self._waiting[place].delivery.label.deliveries > 1
        except IndexError:  # begun, or given back
            return False

    def _execute(self, work: ClaimedTask) -> None:
        began = time.monotonic()
        try:
            kind, payload = self._answer(work)
        finally:
            took = time.monotonic() - began
            self._seconds = (self._seconds + 3 * took) / 4
            self._busy_since = None
        if self._left is not None:
            self._left -= 1
            self._draining = self._draining or self._left == 0
        self._ended.append(FinishedTask(work.delivery, kind, payload))
        self._poke()

    def _answer(self, work: ClaimedTask) -> tuple[str, bytes]:
        """What the answer is, and its payload."""
        task = task_of(work.delivery.path)
        place = f"{self._core.znodes.folder(task.caller)}/{task.job}.{task.part}"
        try:
            with self._encoder.call(place, work.payload, task.caller == self._spec.caller) as (function, args, kwds):
                return DONE, self._encoded(place, *outcome(function, args, kwds))
        except PayloadRefusedError as error:
            return REFUSED, str(error.args[1]).encode(errors="replace")[:1000]

    def _encoded(self, place: str, success: bool, value: Any) -> bytes:
        try:
            return self._encoder.result(place, success, value)
        except PayloadTooLargeError as error:
            return self._encoder.result(place, False, error)
        except PayloadPickleError as error:
            shown = _stdlib.MaybeEncodingError(error.__cause__, value)  # type: ignore[attr-defined]
            return self._encoder.result(place, False, shown)

    def _leave(self) -> None:
        """What was ended is answered, what was not begun is given back."""
        self._draining = self._over = True
        self._poke()
        while not self._all_sent.wait(POLL_S):
            if self._is_orphan or self._failure is not None:
                self._all_sent.wait(LAST_S)
                break
        if self._is_orphan and self._spec.caller is not None:
            self._client.run(remove_caller(self._core, self._spec.caller, self._spec.is_private), LAST_S)

    # ---- in the keeper

    async def _kept(self, protocol: Any) -> None:
        """Runs ``protocol``; if it fails, so does the worker."""
        try:
            await protocol
        except ClientClosedError:  # we are going
            pass
        except (ShutDown, NoNodeError):  # there is no pool any more
            self.drain()
        except Exception as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _claim_batch_size(self) -> int:
        """So many tasks are claimed at once."""
        most = max(1, min(MAX_CLAIMED, int(BATCH_WINDOW_S / max(self._seconds, 1e-6))))
        return most if self._left is None else max(1, min(most, self._left))

    def _needs_tasks(self) -> bool:
        share, have, since = self._claim_batch_size(), len(self._waiting), self._busy_since
        if self._left is not None and have + (since is not None) >= self._left:
            return False
        if since is not None and (self._is_careful or time.monotonic() - since > BATCH_WINDOW_S):
            return False
        if self._is_repeated(-1):
            return False
        return have < share / 2 if share > 1 else not have and since is None

    async def _fetch(self) -> None:
        """Tasks are claimed whenever there are too few."""
        contender_data = describe()
        while not self._draining:
            appetite = self._appetite
            if not self._needs_tasks():
                await Wait(appetite)
                continue
            try:
                claimed = await self._core.claim(
                    contender_data, True, self._claim_batch_size(), self._spec.max_deliveries
                )
            except OutcomeUnknownError:  # with the session, and so has the claim
                continue
            await self._enqueue_tasks(claimed or [])

    async def _enqueue_tasks(self, deliveries: list[ClaimedItem]) -> None:
        """The main thread may begin these."""
        there: dict[str, bool] = {}
        for delivery in deliveries:
            try:
                caller = task_of(delivery.path).caller
            except CorruptNodeError:  # no pool has put this, and nobody can be told
                await self._core.done(delivery)
                continue
            if caller not in there:
                there[caller] = await self._core.is_there(caller)
            work = await self._read(delivery, there[caller])
            if work is not None:
                self._waiting.append(work)
        with self._changed:
            self._changed.notify_all()
        self._poke()

    async def _read(self, delivery: ClaimedItem, is_wanted: bool) -> ClaimedTask | None:
        """The task, if somebody waits for its answer; otherwise it is ended here."""
        try:
            if is_wanted:
                return ClaimedTask(delivery, await self._core.payload(delivery))
        except NoNodeError:  # it was ended, or its caller has gone
            pass
        except CorruptNodeError as error:
            self._ended.append(FinishedTask(delivery, REFUSED, str(error).encode()))
            return None
        self._ended.append(FinishedTask(delivery, DONE, b""))
        return None

    async def _send(self) -> None:
        """Answers are put as soon as there are some, all that have gathered at once."""
        try:
            while True:
                wake = self._wake
                if self._ended:
                    await self._put_answers()
                elif self._over and not self._waiting:
                    break
                elif self._draining or self._is_late():
                    await self._give_back()
                else:
                    await Wait(wake, limit=BATCH_WINDOW_S if self._waiting else None)
        finally:
            self._all_sent.set()

    async def _put_answers(self) -> None:
        self._putting = len(self._ended)
        some = [self._ended.popleft() for _ in range(self._putting)]
        answers = [await self._core.answer(*ended) for ended in some]
        while True:
            try:
                await self._core.finish(answers)
                break
            except OutcomeUnknownError:  # with the session; to end twice what was ended is refused
                continue
        with self._changed:
            self._putting = 0
            self._changed.notify_all()

    def _is_late(self) -> bool:
        """Whether the task at hand takes so long that others should have those behind it."""
        since = self._busy_since
        return bool(self._waiting) and since is not None and time.monotonic() - since > BATCH_WINDOW_S

    async def _give_back(self) -> None:
        wake = self._wake
        try:
            delivery = self._waiting.pop().delivery
        except IndexError:
            await Wait(wake)
            return
        with suppress(OutcomeUnknownError):  # with the session, and so has the claim
            await self._core.give_back(delivery)

    def _poke(self) -> None:
        """Who sends looks again, and who fetches if there is a reason."""
        with self._changed:
            woken = [self._wake]
            self._wake = Signal()
            if self._draining or self._needs_tasks():
                woken.append(self._appetite)
                self._appetite = Signal()
        for each in woken:
            each.fire()

    # ---- in the thread that listens

    def _listen(self) -> None:
        looks = 0
        while not self._all_sent.is_set():
            try:
                if connection.wait([self._control], POLL_S):
                    self._on_command(self._control.recv())
                elif not self._has_parent():
                    raise EOFError
            except (EOFError, OSError):
                self._is_orphan = True
                self.drain()
                return
            looks += 1
            if looks % 5 == 0 and not self._spec.is_private and hasattr(self, "_core"):
                self._client.background(sweep(self._core))

    def _on_command(self, message: str) -> None:
        if message == DRAIN:
            self.drain()
        else:
            self._is_going = True
            lifecycle.close_clients()
            session_handover.finish()
            os._exit(1)

    def _wait_for_end(self) -> None:
        """The thread that listens ends this process."""
        threading.Event().wait()

    def _has_parent(self) -> bool:
        """Whether the process that started this one lives."""
        parent = parent_process()
        return os.getppid() == self._parent and (parent is None or parent.is_alive())


def outcome(function: Any, args: Any, kwds: Any) -> tuple[bool, Any]:
    """Whether it succeeded, and the value or the exception with its traceback."""
    try:
        return True, function(*args, **kwds)
    except Exception as error:
        if function is _stdlib._helper_reraises_exception:  # type: ignore[attr-defined]
            return False, error
        return False, _stdlib.ExceptionWithTraceback(error, error.__traceback__)  # type: ignore[attr-defined]
