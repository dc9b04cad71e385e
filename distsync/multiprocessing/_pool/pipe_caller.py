"""A caller that feeds its local workers by pipes: all that a pool without a name needs. No server is involved.

Three threads run one loop each: one encodes tasks, one receives results and hands out the tasks that
wait, and one replaces workers.

A worker gets several tasks at once if they are short, so that it need not wait for the next one. If
another worker has nothing to do, the tasks that it has not begun are taken back and shared.

A task belongs to one worker at a time. When a worker has exited, its results are read to the end
before its other tasks are given to others.
"""

from __future__ import annotations

import os
import selectors
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import BuiltinFunctionType, FunctionType
from typing import Any

from distsync._client.clocks import wait_clock
from distsync._client.outage_limit import OutageLimit
from distsync._client.payload_codec import reason_of
from distsync.errors import (
    PayloadPickleError,
    PayloadRefusedError,
    PayloadTooLargeError,
    TaskLostError,
    TaskTimeoutError,
    WorkerStartError,
)
from distsync.multiprocessing._pool.pipe_codec import DONE, TASK, PipeCodec
from distsync.multiprocessing._pool.pipe_feed import PipeTask, WorkerFeed
from distsync.multiprocessing._pool.pool_caller import TERMINATE, UNDER_WAY, PoolCaller, ProgressListener
from distsync.multiprocessing._pool.pool_codec import Label
from distsync.multiprocessing._pool.worker_base import WorkerSpec

#: Number of tasks of a list of numbers or short texts that are sent together, because a write takes longer than to
#: encode a task; and maximum bytes of such a task.
SEND_AT_ONCE, SMALL_BYTES = 16, 1024
#: Types of functions and arguments of such tasks. Pickling them calls no method that could wait for an earlier task.
QUICK_FUNCTIONS = frozenset({FunctionType, BuiltinFunctionType, type})
QUICK = frozenset({bool, float, int, str, type(None)})
#: Maximum bytes of the tasks that wait for a worker.
WAITING_BYTES = 64_000_000
#: Seconds after which tasks are taken back from a worker that was reading one.
TAKE_AGAIN_S = 0.005
#: Maximum wait in seconds for threads when the pool ends.
LAST_S = 5.0


class PipeCaller(PoolCaller):
    """A caller that feeds its local workers by pipes.

    Args:
        spec: Configuration of the workers.
        watcher: Notified of the progress; None notifies nothing.
        task_timeout: Seconds that a task may run; None means no limit.

    Raises:
        ConfigurationError: The codec is JSON.
    """

    def __init__(self, spec: WorkerSpec, watcher: ProgressListener | None, task_timeout: float | None = None) -> None:
        super().__init__(spec.path, watcher)
        self._spec, self._codec, self._task_timeout = spec, PipeCodec(spec.settings), task_timeout
        self._under_way: dict[tuple[int, int], PipeTask] = {}
        #: The tasks that no worker has, the next one first.
        self._waiting: deque[PipeTask] = deque()
        self._waiting_bytes = 0
        self._dropped: set[int] = set()
        #: Encoded tasks that are sent together, each with what it is made of.
        self._batch: list[tuple[PipeTask, Any, Any, Any]] = []
        self._feeds: list[WorkerFeed] = []
        #: Pipes that the receiving thread has to look at.
        self._noted: deque[WorkerFeed] = deque()
        try:
            self._wakeup, self._waker = os.pipe()
        except BaseException:  # there are too many open files
            self.notifier.close()
            raise
        #: Those that are open.
        self._wakeup_files = [self._wakeup, self._waker]
        self._is_awake = self._no_more = False
        #: Whether the receiving thread has to look at running tasks now and then.
        self._is_timed = task_timeout is not None
        self._pid = os.getpid()

    def _loops(self) -> tuple[Callable[[], None], ...]:
        return self._supervise, self._encode, self._receive

    def is_mine(self) -> bool:
        """Return whether this process has created this caller. A forked child has none of its threads."""
        return self._pid == os.getpid()

    def note(self, feed: WorkerFeed | None = None) -> None:
        """Let the receiving thread look at pipes.

        Args:
            feed: The pipes to a worker that is ready or has exited, or whose pipe is full. None if
                there is nothing to look at.
        """
        with self._lock:
            if feed is not None:
                self._noted.append(feed)
            if not self._is_awake and not self.is_away:
                self._is_awake = True
                os.write(self._waker, b".")

    # ---- sending tasks

    def _submit(self, job: int, part: int, function: Any, args: Any, kwds: Any) -> None:
        is_quick = self._is_quick and type(function) in QUICK_FUNCTIONS and all(type(each) in QUICK for each in args)
        if not is_quick:
            self._submit_rest()
        task = self._encoded_or_refused(job, part, function, args, kwds)
        if task is None:
            return
        if not is_quick:
            self._begin(task, function, args, kwds)
            return
        self._batch.append((task, function, args, kwds))
        if len(self._batch) >= SEND_AT_ONCE or len(task.frame) > SMALL_BYTES:
            self._submit_rest()

    def _submit_rest(self) -> None:
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        begun: list[PipeTask] = []
        with self._lock:
            for task, *_ in batch:
                if not self._is_valid(task) or self._is_full():
                    break
                self._under_way[task.job, task.part] = task
                begun.append(task)
            if begun:
                self._send_or_keep(begun)
        for task in begun:
            self._note_begun(task)
        for task, function, args, kwds in batch[len(begun) :]:
            self._begin(task, function, args, kwds)

    def _begin(self, task: PipeTask, function: Any, args: Any, kwds: Any) -> None:
        """Send a task as soon as it may be sent."""
        job = task.job
        with self._lock:
            while self._is_full() and self.state != TERMINATE:
                self._changed.wait()
            if job in self._dropped:
                self._dropped.remove(job)
                return
            is_valid = self._is_valid(task)
            if is_valid:
                self._under_way[job, task.part] = task
                self._send_or_keep([task])
        if is_valid:
            self._note_begun(task)
        elif (again := self._encoded_or_refused(job, task.part, function, args, kwds)) is not None:
            self._begin(again, function, args, kwds)

    def _note_begun(self, task: PipeTask) -> None:
        self._count_put(task.items)
        if self._crew.is_hopeless:
            self._crew.failures = 0
            self.notifier.put()

    def _encoded_or_refused(self, job: int, part: int, function: Any, args: Any, kwds: Any) -> PipeTask | None:
        """Return a task; None if it cannot be encoded, which is then its result."""
        try:
            return self._encoded(job, part, function, args, kwds)
        except BaseException as error:  # methods of an argument may raise anything
            is_wrapped = isinstance(error, PayloadPickleError) and error.__cause__ is not None
            self._refuse(job, part, function, args, error.__cause__ or error if is_wrapped else error)
            return None

    def _encoded(self, job: int, part: int, function: Any, args: Any, kwds: Any) -> PipeTask:
        """Return a task. Raises whatever a method of an argument raises."""
        payload: Any = self._codec.dumps((function, args, kwds))
        label = Label.of(function, args)
        if len(payload) > self._spec.limit_bytes:
            text = f"the task {label.function} (job {job}, part {part}) of {self._path}"
            raise PayloadTooLargeError(text, len(payload), self._spec.limit_bytes)
        frame = b"".join((TASK.pack(job, part, len(payload)), payload))
        return PipeTask(job, part, frame, label.function, label.items)

    def _is_valid(self, task: PipeTask) -> bool:
        """Return whether a task can be sent, and need not be encoded again."""
        return True

    def _is_full(self) -> bool:
        """Return whether the next task must wait."""
        return len(self._under_way) >= UNDER_WAY or self._waiting_bytes > WAITING_BYTES

    def _send_or_keep(self, tasks: Sequence[PipeTask]) -> None:
        """Send tasks to the workers that have the fewest, unless all have enough."""
        share = -(-len(tasks) // max(1, len(self._feeds)))
        while tasks and not self._waiting and self._feeds:
            feed = min(self._feeds, key=_load)
            count = min(feed.room(0.5), share)
            if count <= 0:
                break
            if self._is_timed and not feed.tasks:
                self.note()  # for the time of the next look
            self._send(feed, tasks[:count])
            tasks = tasks[count:]
        self._waiting.extend(tasks)
        self._waiting_bytes += sum(len(task.frame) for task in tasks)

    def _send(self, feed: WorkerFeed, tasks: Sequence[PipeTask]) -> None:
        feed.send(tasks)
        if not feed.is_flushed:
            self.note(feed)

    def _hand_out(self) -> bool:
        """Give the waiting tasks to workers that have room, the oldest first.

        If none waits, and a worker is idle, take back what others have not begun.

        Returns:
            False if another worker is reading a task just now, so that it is to be tried again.
        """
        while True:
            free = [feed for feed in self._feeds if feed.room() > 0]
            if not free:
                return True
            if not self._waiting:
                if all(feed.tasks for feed in free):
                    return True
                rich = max(self._feeds, key=_load)
                if len(rich.tasks) < 2:
                    return True
                taken = rich.take_back()
                if taken is None:
                    return False
                if not taken:
                    return True
                self._put_back(taken)
            free.sort(key=_load)
            share = max(1, len(self._waiting) // len(free))
            for feed in free:
                count = min(share, feed.room(), len(self._waiting))
                tasks = [self._waiting.popleft() for _ in range(count)]
                self._waiting_bytes -= sum(len(task.frame) for task in tasks)
                if tasks:
                    self._send(feed, tasks)

    def _put_back(self, tasks: Sequence[PipeTask]) -> None:
        """Let tasks wait again, before all others."""
        for task in reversed(tasks):
            task.feed = None
            self._waiting.appendleft(task)
            self._waiting_bytes += len(task.frame)

    def withdraw(self, job: int, limit: OutageLimit | None = None) -> bool:
        if self._pid != os.getpid():  # a forked child: its parent's workers are not its own
            return False
        with self._lock:
            task = self._under_way.get((job, 0))
            if task is None and job in self.cache:  # it is not encoded yet
                self._dropped.add(job)
                del self.cache[job]
                return True
            if task is None or task.is_done:
                return False
            if task.feed is not None and len(task.feed.tasks) > 1:
                self._put_back(task.feed.take_back() or ())
            is_waiting = task.feed is None and not task.is_exported
            if is_waiting:
                self._waiting.remove(task)
                self._waiting_bytes -= len(task.frame)
                del self._under_way[job, 0]
                self._changed.notify_all()
            self.note()  # others were taken back, too
        if is_waiting:
            if self._watcher:
                self._watcher.done(task.items)
            if job in self.cache:
                del self.cache[job]
        return is_waiting

    def is_running(self, job: int) -> bool:
        if self._pid != os.getpid():
            return False
        with self._lock:
            task = self._under_way.get((job, 0))
            return task is not None and not task.is_done and task.feed is not None and task.feed.tasks[0] is task

    def interrupt(self, job: int) -> bool:
        """Kill the worker that runs a job of one task.

        Args:
            job: Number of the job.

        Returns:
            Whether a worker ran it. Its result is then a TaskLostError.
        """
        if self._pid != os.getpid():
            return False
        with self._lock:
            task = self._under_way.get((job, 0))
            is_running = self.is_running(job)
            if is_running and task is not None and task.feed is not None:
                task.feed.kill(TaskLostError(str(task), self._path, "it was cancelled"))
            return is_running

    # ---- receiving results

    def _receive(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wakeup, selectors.EVENT_READ)
            pause = None
            while not self._no_more:  # a callback may have taken long
                ready = selector.select(pause)
                with self._lock:
                    if self._no_more:
                        return
                    finished: list[tuple[PipeTask, int, bytes]] = []
                    lost: list[PipeTask] = []
                    for key, _ in ready:
                        feed = key.data
                        if feed is None:
                            os.read(self._wakeup, 1)
                            self._is_awake = False
                        elif key.fd == feed.results_file:
                            finished += feed.receive()
                            if feed.is_silent:
                                selector.unregister(feed.results_file)
                        else:
                            feed.flush()
                            if feed.is_flushed:
                                selector.unregister(feed.tasks_file)
                    while self._noted:
                        self._look_at(self._noted.popleft(), selector, finished, lost)
                    pause = self._look_after(None if self._hand_out() else TAKE_AGAIN_S)
                for task, kind, payload in finished:
                    self._accept(task, kind, payload)
                    kind = payload = None  # type: ignore[assignment]
                for task in lost:
                    reason = f"it was delivered {task.deliveries} times, and no worker lived to its end"
                    error = task.ended or TaskLostError(str(task), self._path, reason)
                    self._deliver(task.job, task.part, (False, error))
                self._forget([*(each[0] for each in finished), *lost])
                finished = lost = task = None  # type: ignore[assignment]

    def _accept(self, task: PipeTask, kind: int, payload: bytes) -> None:
        """Set the result of a task that a local worker has finished."""
        self._deliver(task.job, task.part, self._outcome(task, kind, payload))

    def _look_after(self, pause: float | None) -> float | None:
        """Kill workers whose tasks run too long. Return the seconds until the next look, ``pause`` at most."""
        timeout, now = self._task_timeout, wait_clock()
        if timeout is None:
            return pause
        for feed in self._feeds:
            if not feed.tasks or feed.is_killed or feed.has_exited:
                continue
            left = feed.began_at + timeout - now
            if left <= 0:
                reason = f"it ran longer than {timeout:g} s"
                feed.kill(TaskTimeoutError(str(feed.tasks[0]), self._path, reason))
            else:
                pause = left if pause is None else min(pause, left)
        return pause

    def _look_at(
        self,
        feed: WorkerFeed,
        selector: selectors.BaseSelector,
        finished: list[tuple[PipeTask, int, bytes]],
        lost: list[PipeTask],
    ) -> None:
        """Begin to use a worker that is ready, wait for a full pipe, or settle the tasks of one that has exited."""
        is_known = feed in self._feeds
        if feed.is_closed:  # it was noted twice
            return
        if feed.has_exited:
            if is_known:
                self._feeds.remove(feed)
                for file in (feed.results_file, feed.tasks_file):
                    with suppress(KeyError):
                        selector.unregister(file)
            finished += feed.receive_all()
            lost += self._settle(feed)
            feed.close()
            self._changed.notify_all()
        elif not is_known:
            self._feeds.append(feed)
            selector.register(feed.results_file, selectors.EVENT_READ, feed)
        if is_known and not feed.has_exited and not feed.is_flushed:
            with suppress(KeyError):  # it is registered already
                selector.register(feed.tasks_file, selectors.EVENT_WRITE, feed)

    def _settle(self, feed: WorkerFeed) -> list[PipeTask]:
        """Let the tasks of a worker that has exited wait for others. Return the task that is lost, if one is."""
        tasks, lost = list(feed.tasks), []
        feed.tasks.clear()
        if tasks and not feed.is_leaving:  # it was running the first one
            tasks[0].deliveries += not feed.is_killed
            if tasks[0].ended or 0 < self._spec.max_deliveries <= tasks[0].deliveries:
                lost = [tasks.pop(0)]
                lost[0].is_done = True
        self._put_back(tasks)
        if tasks and self._crew.is_hopeless:  # the other tasks were failed before these were put back
            self.notifier.put()
        return lost

    def _outcome(self, task: PipeTask, kind: int, payload: bytes) -> tuple[bool, Any]:
        if kind != DONE:
            return False, PayloadRefusedError(f"{task} of {self._path}", payload.decode(errors="replace"))
        try:
            outcome: tuple[bool, Any] = self._codec.loads(payload)
            return outcome
        except Exception as error:  # whatever a method of the value raises
            reason = f"the caller cannot decode it, {reason_of(error)}"
            return False, PayloadRefusedError(f"{task} of {self._path}, as it came back", reason)
        except BaseException as error:  # the result calls sys.exit() when it is unpickled, for example
            return False, error

    def _forget(self, tasks: Sequence[PipeTask]) -> None:
        """Count tasks whose results are set as finished."""
        if self._watcher:
            for task in tasks:
                self._watcher.done(task.items)
        with self._lock:
            for task in tasks:
                self._under_way.pop((task.job, task.part), None)
            if len(self._under_way) < UNDER_WAY * 3 // 4:
                self._changed.notify_all()

    def _fail_hopeless(self) -> None:
        error = WorkerStartError(self._path, self._crew.failures, self._crew.story)
        with self._lock:
            tasks = [task for task in self._under_way.values() if not task.is_done and task.feed is None]
            self._waiting.clear()
            self._waiting_bytes = 0
            for task in tasks:
                task.is_done = True
        for task in tasks:
            self._deliver(task.job, task.part, (False, error))
        self._forget(tasks)

    # ---- the end

    def outage_limit(self) -> OutageLimit | None:
        return None

    def _stop(self) -> None:
        for thread in self.threads[:1]:
            thread.join()
        self._crew.terminate()
        self._break_off()
        self._cleanup()

    def _cleanup(self) -> None:
        """Stop the other threads, and close the pipes."""
        if self.is_clean:
            return
        self.tasks.put(None)
        with self._lock:
            self._no_more = True
            self._changed.notify_all()
        self.note()
        self.is_away = True
        for thread in self.threads:
            if thread not in (threading.current_thread(), self.threads[0]):
                thread.join(LAST_S)
        self._close_files()

    def _close_files(self) -> None:
        """Close all pipes."""
        self.notifier.close()
        with self._lock:  # the encoding thread may still wait in an iterable
            for feed in {*self._feeds, *self._noted}:
                feed.close()
            self._feeds.clear()
            self._noted.clear()
            while self._wakeup_files:
                os.close(self._wakeup_files.pop())
        self.is_clean = True


def _load(feed: WorkerFeed) -> int:
    """Return how many tasks a worker has."""
    return len(feed.tasks)
