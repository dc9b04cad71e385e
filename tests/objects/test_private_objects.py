"""Objects without a name that are used although no other process can find them."""

from __future__ import annotations

import asyncio as stdlib_asyncio
import os
import pickle
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from helpers.forked_children import in_child

from distsync import CountDownLatch, Counter, Election, JoinableQueue, PrivateObjectWarning, SharedLock, asyncio
from distsync._client.client import Client
from distsync._client.default_client import close_default
from distsync._client.naming import inference
from distsync._client.naming.inference import UNNAMED
from distsync.errors import ConfigurationError, PrivateObjectError, UsageError
from distsync.multiprocessing import Pool, managers, queues, sharedctypes, synchronize
from distsync.queue import Queue, SimpleQueue
from distsync.threading import Barrier, Condition, Event, Lock, RLock, Semaphore

pytestmark = pytest.mark.usefixtures("unnamed_objects_warn", "client")

Warned = list[warnings.WarningMessage]


@pytest.fixture
def warned(recwarn: pytest.WarningsRecorder) -> Warned:
    """The warnings of the test, as a program sees them by default."""
    warnings.simplefilter("default")
    warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.12 a fork of a process with threads warns
    return recwarn.list


def here() -> int:
    """Return the line of the caller."""
    return sys._getframe(1).f_lineno


class App:
    """A program as most are."""

    def __init__(self) -> None:
        self.lock, self.line = Lock(), here()


def use_lock(lock: Any) -> None:
    with lock:
        pass


def test_lock_of_an_instance_warns_at_its_first_use_with_its_place_and_what_to_do(warned: Warned) -> None:
    app = App()
    assert not warned
    for _ in range(2):
        use_lock(app.lock)
    use_lock(App().lock)
    assert [(each.category, each.filename, each.lineno) for each in warned] == [
        (PrivateObjectWarning, __file__, app.line)
    ]
    text = str(warned[0].message)
    assert text.startswith(f"distsync.threading.Lock created at {__file__}:{app.line} is private to this process")
    for way in ("assign it to a variable of its own at module or class level", 'name="..."', "DISTSYNC_UNNAMED=ignore"):
        assert way in text


USES: dict[Callable[[], Any], Callable[[Any], Any]] = {
    RLock: use_lock,
    Condition: use_lock,
    Semaphore: use_lock,
    Event: Event.is_set,
    Queue[int]: Queue.qsize,
    SimpleQueue: SimpleQueue.qsize,
    Counter: Counter.get,
    Election: use_lock,
    JoinableQueue: JoinableQueue.qsize,
    SharedLock: lambda lock: use_lock(lock.reader),
}


@pytest.mark.parametrize("kind", USES, ids=lambda kind: str(getattr(kind, "__name__", kind)))
def test_object_of_each_kind_warns(kind: Any, warned: Warned) -> None:
    made, line = kind(), here()
    USES[kind](made)
    origin = getattr(kind, "__origin__", kind)
    assert [each.lineno for each in warned] == [line]
    assert str(warned[0].message).startswith(f"{origin.__module__}.{origin.__qualname__} created at {__file__}:{line} ")


def test_object_of_asyncio_warns(warned: Warned) -> None:
    async def use() -> int:
        lock, line = asyncio.Lock(), here()
        async with lock:
            return line

    line = stdlib_asyncio.run(use())
    assert [(each.filename, each.lineno) for each in warned] == [(__file__, line)]
    assert str(warned[0].message).startswith("distsync.asyncio.Lock created at")


def test_unnamed_object_keeps_nothing_of_its_creator_alive() -> None:
    def create() -> tuple[Lock, weakref.ref[App]]:
        local = App()
        return Lock(), weakref.ref(local)

    lock, local = create()
    assert lock.name
    assert local() is None


def test_named_object_does_not_warn(warned: Warned) -> None:
    use_lock(Lock(name="named"))
    use_lock(Condition(path="/".join((Lock(name="x").path, "condition"))))
    assert not warned


@pytest.mark.parametrize("send", [pickle.dumps, lambda lock: in_child(lambda: None)], ids=["pickle", "fork"])
def test_object_that_has_travelled_before_its_first_use_does_not_warn(
    send: Callable[[Any], Any], warned: Warned
) -> None:
    locks = [Lock(), asyncio.Lock().twin, SharedLock()]
    for lock in locks:
        send(lock)
    for lock in (*locks[:2], locks[2].writer):
        use_lock(lock)
    assert not warned


def test_object_of_the_parent_does_not_warn_in_a_forked_child_and_one_of_the_child_does(warned: Warned) -> None:
    inherited = Lock()

    def child() -> None:
        use_lock(inherited)
        assert not warned
        use_lock(Lock())
        assert len(warned) == 1
        close_default()

    assert in_child(child) == 0


def test_object_that_is_not_used_does_not_warn(warned: Warned) -> None:
    made = [Lock(), Event(), Queue[int](), Barrier(2), CountDownLatch(1)]
    assert all(each.name and each.path and repr(each) for each in made)
    assert not warned


def test_object_of_multiprocessing_does_not_warn(warned: Warned) -> None:
    for lock in (synchronize.Lock(), synchronize.RLock(), synchronize.Semaphore(), synchronize.BoundedSemaphore()):
        use_lock(lock)
    use_lock(synchronize.Condition())
    synchronize.Event().is_set()
    synchronize.Barrier(1).wait()
    for queue in (queues.Queue(1), queues.JoinableQueue(1), queues.SimpleQueue()):
        queue.put(1)
    assert sharedctypes.Value("i", 3).value == 3
    with managers.SyncManager() as manager:
        manager.Lock().acquire()
        manager.dict()[1] = 2
    with Pool(1) as pool:
        pool.apply(os.getpid)
    pool.join()
    assert not warned


def test_silenced_place_does_not_warn(warned: Warned) -> None:
    warnings.filterwarnings("ignore", category=PrivateObjectWarning, module=__name__)
    use_lock(Lock())
    assert not warned


def test_warning_that_the_program_made_an_error_is_raised_at_each_use_and_leaves_nothing(client: Client) -> None:
    lock = Lock()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(PrivateObjectWarning):
                lock.acquire()
    warnings.simplefilter("ignore")
    assert lock.acquire(blocking=False)
    lock.release()


def test_ignore_silences_all(set_unnamed: Callable[[str], None], warned: Warned) -> None:
    set_unnamed("ignore")
    use_lock(Lock())
    assert not warned


def test_error_is_raised_at_each_use(set_unnamed: Callable[[str], None]) -> None:
    set_unnamed("error")
    lock, line = Lock(), here()
    for use in (lock.acquire, lock.locked, lock.__enter__):
        with pytest.raises(PrivateObjectError, match=rf"Lock created at \S+:{line} is private") as raised:
            use()
        assert isinstance(raised.value, UsageError)
        assert isinstance(raised.value, RuntimeError)
    pickle.dumps(lock)
    use_lock(lock)


def test_in_site_mode_objects_are_named_and_do_not_warn_and_those_of_multiprocessing_stay_unique(
    set_unnamed: Callable[[str], None], warned: Warned, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_unnamed("site")
    monkeypatch.setattr(inference, "_ordinals", {})  # as in a new process
    lock, queue, private = Lock(), asyncio.Queue(), synchronize.Lock()
    use_lock(lock)
    assert queue.twin.qsize() == 0
    scope = "test_in_site_mode_objects_are_named_and_do_not_warn_and_those_of_multiprocessing_stay_unique"
    for made, variable in ((lock, "lock"), (queue, "queue")):
        assert made.name.startswith(f"{__name__}.{scope}")
        assert made.name.endswith(f".{variable}#1")
    assert scope not in private.name
    assert not warned


def test_unknown_mode_is_a_configuration_error_that_names_the_modes(set_unnamed: Callable[[str], None]) -> None:
    set_unnamed("warm")
    with pytest.raises(
        ConfigurationError, match=f"{UNNAMED}='warm' cannot be used: it must be warn, error, ignore or site"
    ):
        use_lock(Lock())
