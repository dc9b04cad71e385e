"""A caller of a pool with a name that has local workers.

These get its tasks by pipes, as those of a pool without a name do. If they have no room for more, and a
worker elsewhere waits, tasks go to the queue of the server. A task is either in a pipe or in the queue,
never in both. If the local workers have nothing to do, they get tasks from the queue: this process claims
them.

The number of its tasks in the queue is limited by a window, which opens by the number of workers that wait
elsewhere. If these leave, it need not close: while there are tasks for which local workers have no room, it is
full, and a full window lets no more tasks go. Those in the queue come back when the local workers have nothing
else to do, and the first of them closes the window. So the exit of workers delays at most one window of tasks.

Besides the threads of `PipeCaller` and `PoolClient`, one claims tasks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from distsync._client.clocks import wait_clock
from distsync._client.contender_info import describe
from distsync._log import OwnLogger
from distsync._protocols.pool.tasks import DONE, MAX_CLAIMED, REFUSED
from distsync._protocols.pool.workers import announce_workers
from distsync._protocols.queues.claim_layout import ClaimedItem
from distsync._protocols.retries import REFUSED_S, read
from distsync._protocols.steps import Children, Exists, KeepResults, Signal, Wait, WakeReason, Watch
from distsync.errors import ClientClosedError, DistsyncError, NoNodeError, OutcomeUnknownError, ShutDown
from distsync.multiprocessing._pool import pipe_codec
from distsync.multiprocessing._pool.local_workers import LocalWorkers
from distsync.multiprocessing._pool.pipe_feed import AHEAD_S, PipeTask, WorkerFeed
from distsync.multiprocessing._pool.pool_caller import TERMINATE
from distsync.multiprocessing._pool.pool_client import ASSUMED_DEAD, LAST_S, PoolClient
from distsync.multiprocessing._pool.pool_worker import BATCH_WINDOW_S, FinishedTask

#: Seconds for which the local workers must have no room before this looks for workers elsewhere, and for
#: which they must have nothing to do before this claims.
SURPLUS_S, IDLE_S = 0.02, 0.05

logger = OwnLogger("distsync.multiprocessing")


class NoLongerIdleError(DistsyncError):
    """The local workers have tasks again, so that this process does not claim others."""


class WorkingPoolClient(PoolClient):
    """One caller of a pool with a name, with workers of its own.

    Args:
        *args: Arguments of PoolClient.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._window, self._is_timed = 0.0, True
        self._to_claim = threading.Condition(self._lock)
        #: Whether a call claims, whether the claiming thread waits for idle workers, and whether it ends.
        self._is_claiming = self._awaits_idle = self._stops_claiming = False
        #: Number of tasks of this caller that local workers have got.
        self._sent = 0
        #: Fires if the local workers have no room for more tasks.
        self._surplus = Signal()

    def start(self, crew: LocalWorkers) -> None:
        self._client.background(self._look_for_workers())
        self._client.background(announce_workers(self._core, self.first_caller, describe(), crew.count, self._ends))
        super().start(crew)

    def _loops(self) -> tuple[Callable[[], None], ...]:
        return *super()._loops(), self._receive, self._claim

    def _send_or_keep(self, tasks: Sequence[PipeTask]) -> None:
        super()._send_or_keep(tasks)
        if self._waiting:
            self._note_surplus()

    def _send(self, feed: WorkerFeed, tasks: Sequence[PipeTask]) -> None:
        self._sent += sum(task.delivery is None for task in tasks)
        super()._send(feed, tasks)

    def _note_surplus(self) -> None:
        """Let tasks go elsewhere for which the local workers have no room."""
        if self._may_export():
            self._to_put.notify()
        elif not self._surplus.fired:
            self._surplus.fire()

    # ---- workers elsewhere

    async def _look_for_workers(self) -> None:
        """Whenever the local workers have no room, see how many workers elsewhere wait for tasks."""
        while not self._ends.fired:
            await KeepResults()
            await Wait(self._surplus, self._ends)
            if await Wait(self._ends, limit=SURPLUS_S) is not WakeReason.LIMIT:
                return
            self._surplus = Signal()
            if not self._waiting:
                continue
            self._interrupt_claim()
            watch = Watch()
            try:
                count = await self._count_waiting(watch)
                with self._lock:
                    if count:
                        self._window = max(self._window, len(self._exported) + count * self._tasks_per_worker())
                    if self._may_export():
                        self._to_put.notify()
                await Wait(watch, self._ends)
            except ClientClosedError:
                return
            except DistsyncError:  # later requests may succeed
                await Wait(self._ends, limit=REFUSED_S)
            if self._waiting:
                self._surplus.fire()

    async def _count_waiting(self, watch: Watch) -> int:
        """Return how many workers wait for tasks. Set ``watch`` on that."""
        try:
            return len((await read(Children(self._core.getters, watch))).names)
        except NoNodeError:
            return 0 if await read(Exists(self._core.getters, watch)) is None else 1

    def _tasks_per_worker(self) -> int:
        """Return how many tasks a worker elsewhere should have."""
        known = [feed.task_seconds for feed in self._feeds if feed.task_seconds < AHEAD_S]
        return 1 if not known else max(1, min(2 * MAX_CLAIMED, int(2 * BATCH_WINDOW_S * len(known) / sum(known))))

    # ---- claiming tasks for idle local workers

    def _claim(self) -> None:
        while (number := self._wait_until_idle()) > 0:
            claimed: list[ClaimedItem] = []
            tasks: list[PipeTask] = []
            ended: list[FinishedTask] = []
            try:
                self._client.run(self._core.claim_into(claimed, describe(), True, number, self._spec.max_deliveries))
                tasks, ended = self._client.run(self._claims.read(claimed, self.caller))
            except NoLongerIdleError:
                pass
            except (ShutDown, NoNodeError, ClientClosedError):  # the pool was deleted, or ends
                self._stops_claiming = True
            except OutcomeUnknownError:  # the session ended, and the claim with it
                pass
            except DistsyncError as error:
                logger.warning("cannot claim tasks of the pool %s: %s", self._path, error)
                with self._lock:
                    self._to_claim.wait_for(lambda: self._stops_claiming, REFUSED_S)
            finally:
                with self._lock:
                    self._is_claiming = False
                    self._take(claimed, tasks, ended)
                    self._to_put.notify()
            claimed = tasks = ended = None  # type: ignore[assignment]

    def _take(self, claimed: list[ClaimedItem], tasks: list[PipeTask], ended: list[FinishedTask]) -> None:
        """Give claimed tasks to local workers."""
        claims = self._claims
        claims.count += len(claimed)
        if any(task.caller == self.caller for task in tasks):  # no worker elsewhere has taken it
            self._window = 0.0
        claims.finished += ended
        known = {id(each.delivery) for each in ended} | {id(task.delivery) for task in tasks}
        if self._stops_claiming:
            claims.unused += [each for each in claimed if id(each) not in {id(one.delivery) for one in ended}]
        else:
            claims.unused += [each for each in claimed if id(each) not in known]
            self._waiting.extend(tasks)
            self._waiting_bytes += sum(len(task.frame) for task in tasks)
            self._hand_out()
            self.note()  # for the time after which others must not wait behind a task

    def _wait_until_idle(self) -> int:
        """Wait until local workers have nothing to do. Return how many tasks to claim for them; 0 at the end."""
        with self._lock:
            while not self._stops_claiming:
                number, sent = self._wanted(), self._sent
                if number and not self._claims.count:  # the program may be about to call the pool again
                    self._to_claim.wait(IDLE_S)
                    number = self._wanted() if self._sent == sent and not self._stops_claiming else 0
                if number:
                    self._is_claiming = True
                    return number
                if not self._stops_claiming and self._sent == sent:
                    self._awaits_idle = True
                    self._to_claim.wait()
            return 0

    def _wanted(self) -> int:
        """Return how many tasks to claim."""
        if any(task.delivery is None for task in self._waiting):
            return 0
        share = have = 0
        is_idle = False
        for feed in self._feeds:
            have += len(feed.tasks)
            if feed.room() > 0:
                share += max(1, min(MAX_CLAIMED, int(BATCH_WINDOW_S / max(feed.task_seconds, 1e-6))))
                is_idle = is_idle or not feed.tasks
        have += len(self._waiting)
        if not is_idle and have > share / 2:
            return 0
        return max(0, min(MAX_CLAIMED, share - have))

    def _interrupt_claim(self) -> None:
        """Stop to wait for the tasks of others."""
        with self._lock:
            if self._is_claiming:
                self._client.interrupt(self._claiming_thread.ident or 0, NoLongerIdleError("a claim"))

    def _stop_claiming(self) -> None:
        with self._lock:
            self._stops_claiming = True
            self._to_claim.notify_all()
            self._interrupt_claim()

    @property
    def _claiming_thread(self) -> threading.Thread:
        return self.threads[-1]

    def _look_after(self, pause: float | None) -> float | None:
        """Do not let tasks wait behind one that takes long. Wake the threads that have something to do."""
        now = wait_clock()
        for feed in self._feeds:
            if feed.tasks and not feed.is_late and now - feed.began_at > BATCH_WINDOW_S:
                feed.is_late = True
            if feed.is_late and len(feed.tasks) > 1:
                self._put_back(feed.take_back() or ())
            if feed.tasks and (not feed.is_late or len(feed.tasks) > 1):
                pause = BATCH_WINDOW_S if pause is None else min(pause, BATCH_WINDOW_S)
        if self._waiting:
            self._give_back_late()
            self._note_surplus()
        if self._claims.has_ended_some or self._may_export():
            self._to_put.notify()
        if self._awaits_idle and self._wanted():
            self._awaits_idle = False
            self._to_claim.notify()
        return pause

    def _give_back_late(self) -> None:
        """Give back claimed tasks if no local worker will begin one soon."""
        if self._feeds and all(feed.is_late for feed in self._feeds):
            self._give_back_waiting()

    def _give_back_waiting(self) -> None:
        """Give back the claimed tasks that no local worker has."""
        late = [task for task in self._waiting if task.delivery is not None]
        for task in late:
            self._waiting.remove(task)
            self._waiting_bytes -= len(task.frame)
            if task.delivery is not None:
                self._claims.unused.append(task.delivery)

    def _accept(self, task: PipeTask, kind: int, payload: bytes) -> None:
        if task.delivery is None:
            super()._accept(task, kind, payload)
            return
        with self._lock:
            kind_elsewhere = DONE if kind == pipe_codec.DONE else REFUSED
            self._claims.finished.append(FinishedTask(task.delivery, kind_elsewhere, payload))
            self._to_put.notify()

    def _settle(self, feed: WorkerFeed) -> list[PipeTask]:
        first = feed.tasks[0] if feed.tasks and not feed.is_leaving else None
        if first is not None and first.delivery is not None:
            feed.tasks.popleft()
            self._claims.broken.append(first.delivery)
            feed.is_leaving = True  # the others were not begun
        return super()._settle(feed)

    def _forget(self, tasks: Sequence[PipeTask]) -> None:
        super()._forget([task for task in tasks if task.delivery is None])

    # ---- the end

    def _is_over(self) -> bool:
        return super()._is_over() and not self._is_claiming

    def _lost_elsewhere(self) -> list[PipeTask]:
        return [self._under_way[each] for each in self._exported if each in self._under_way]

    def _fail(self, tasks: Iterable[PipeTask], error: Exception | None, reason: str = ASSUMED_DEAD) -> None:
        self._window = 0.0  # the next look may open it again
        super()._fail(tasks, error, reason)

    def _fail_hopeless(self) -> None:
        with self._lock:
            self._give_back_waiting()
        super()._fail_hopeless()
        with self._lock:
            self._exported &= set(self._under_way)
            self._to_put.notify()

    def _end_workers(self) -> None:
        self._stop_claiming()
        super()._end_workers()

    def _end_claims(self) -> None:
        self._stop_claiming()
        is_receiving = any(each.name == "distsync-pool-receive" and each.is_alive() for each in self.threads)
        self._changed.wait_for(lambda: not (is_receiving and (self._feeds or self._noted)), LAST_S)
        self._give_back_waiting()

    def _stop(self) -> None:
        self._stop_claiming()
        super()._stop()

    def _give_up(self, reason: str) -> None:
        """Fail the tasks that only workers elsewhere can run, and wait for the others."""
        with self._lock:
            lost = self._lost_elsewhere() if self.state != TERMINATE else []
        if lost:
            self._log_given_up(len({task.job for task in lost}), reason)
        self._fail(lost, None, reason)
        self.close()  # the pool of a manager waits for its other callers, of which no server tells
        for thread in self.threads:
            thread.join()
