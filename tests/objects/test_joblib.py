"""The joblib backend: results, errors, time-outs and the end of calls, and a grid search of scikit-learn on workers."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import pool as remote_pool
from helpers.servers import ServerProcess
from helpers.subprocesses import ROOT, Shells, is_running, printed
from helpers.timing import PATIENCE, UNIT, eventually

import distsync.joblib
from distsync import DeadlineError, Event, PayloadTooLargeError
from distsync._client import default_client
from distsync._client.client import Client
from distsync.futures import Executor
from distsync.multiprocessing import get_context
from distsync.multiprocessing.pool import Pool

MakeClient = Callable[..., Client]

LONG = 3 * PATIENCE

joblib: Any = pytest.importorskip("joblib")
joblib_calls: Any = pytest.importorskip("helpers.remote_functions.joblib_calls")
delayed, Parallel, parallel_config = joblib.delayed, joblib.Parallel, joblib.parallel_config

LOCAL: dict[str, Any] = {"backend": "distsync", "n_jobs": 2, "mp_context": get_context("fork")}
"""Two processes of this machine, which start faster than by default."""


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    distsync.joblib.register()
    yield
    joblib.parallel.BACKENDS.pop("distsync")


@pytest.fixture
def unreachable() -> Iterator[Client]:
    """Yield a default client whose server does not exist."""
    client = Client(hosts="127.0.0.1:1", connect_timeout=0.1, namespace="/nowhere")
    default_client.set_default(client)
    yield client
    default_client.set_default(None)
    client.close()


@pytest.fixture
def shells(server: ServerProcess, namespace: str, tmp_path: Path) -> Iterator[Shells]:
    environment = {"DISTSYNC_HOSTS": server.hosts, "DISTSYNC_NAMESPACE": namespace, "DISTSYNC_SESSION_TIMEOUT": "4"}
    made = Shells(tmp_path, {**environment, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PYTHONWARNINGS": ""})
    yield made
    made.close()


def squares(count: int, **options: Any) -> Any:
    return Parallel(**options)(delayed(remote_pool.square)(number) for number in range(count))


def pids(count: int = 8, **options: Any) -> set[int]:
    return set(Parallel(**{"batch_size": 1, **options})(delayed(remote_pool.pid)() for _ in range(count)))


# ---- without a name


def test_calls_need_no_server_and_their_processes_are_kept_for_the_next_ones(unreachable: Client) -> None:
    with parallel_config(**LOCAL):
        assert squares(100) == [number * number for number in range(100)]
        first = pids(20)
        assert os.getpid() not in first
        assert pids(20) | first == first
        assert len(first) <= 2
        assert len(pids(30, n_jobs=3) - first) <= 3
        with Parallel() as parallel:
            for _ in range(2):
                assert parallel(delayed(remote_pool.square)(number) for number in range(3)) == [0, 1, 4]


@pytest.mark.slow("processes that are spawned import pytest")
def test_backend_is_selected_for_one_call(unreachable: Client) -> None:
    assert squares(3, n_jobs=2, backend="distsync") == [0, 1, 4]


def test_one_job_runs_in_this_process(unreachable: Client) -> None:
    with parallel_config("distsync"):
        assert pids(2, n_jobs=1) == {os.getpid()}
        assert joblib.effective_n_jobs(-1) == joblib.cpu_count()
        assert joblib.effective_n_jobs(3) == 3
        with pytest.raises(ValueError, match="n_jobs == 0"):
            squares(1, n_jobs=0)


def test_error_arrives_as_itself_and_ends_the_other_calls(unreachable: Client, tmp_path: Path) -> None:
    with parallel_config(**LOCAL):
        calls = [delayed(remote_pool.raise_it)(KeyError("x"))]
        calls += [delayed(joblib_calls.note)(tmp_path, number) for number in range(500)]
        with pytest.raises(KeyError, match="x"):
            Parallel(batch_size=1)(calls)
        assert squares(3) == [0, 1, 4]
    assert len(list(tmp_path.iterdir())) < 500


@pytest.mark.parametrize("return_as", ["generator", "generator_unordered"])
def test_results_are_generated(unreachable: Client, return_as: str) -> None:
    with parallel_config(**LOCAL):
        results = squares(50, return_as=return_as)
        assert sorted(results) == [number * number for number in range(50)]
        results = Parallel(return_as="generator")(delayed(remote_pool.slow_square)(number) for number in range(100))
        assert list(itertools.islice(results, 3)) == [0, 1, 4]
        others = squares(50, return_as="generator")
        with pytest.warns(UserWarning, match="not used|cancelled"):
            results.close()
        assert list(others) == [number * number for number in range(50)]


def test_call_that_reaches_its_timeout_ends_its_processes(unreachable: Client, tmp_path: Path) -> None:
    with parallel_config(**LOCAL):
        squares(2)
        with pytest.raises(multiprocessing.TimeoutError):
            Parallel(timeout=2 * UNIT)(delayed(joblib_calls.note_and_sleep)(tmp_path, 10 * LONG) for _ in range(2))
        eventually(lambda: not any(is_running(int(path.name)) for path in tmp_path.iterdir()))
        assert squares(3) == [0, 1, 4]


def test_interrupted_call_ends_its_processes(unreachable: Client, tmp_path: Path) -> None:
    main = threading.main_thread().ident or 0

    def interrupt() -> None:
        eventually(lambda: any(tmp_path.iterdir()))
        signal.pthread_kill(main, signal.SIGINT)

    with parallel_config(**LOCAL):
        squares(2)
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            Parallel()(delayed(joblib_calls.note_and_sleep)(tmp_path, 10 * LONG) for _ in range(9))
        interrupter.join()
        eventually(lambda: not any(is_running(int(path.name)) for path in tmp_path.iterdir()))


def test_calls_inside_of_a_task_run_in_its_worker(unreachable: Client) -> None:
    with parallel_config(**LOCAL):
        for backend in (None, "distsync"):
            for worker, found in Parallel()(delayed(joblib_calls.nested_pids)(backend, None) for _ in range(3)):
                assert worker != os.getpid()
                assert set(found) == {worker}


@pytest.mark.parametrize("name", ["p", None])
def test_lambda_travels_with_cloudpickle_only(make_client: MakeClient, name: str | None) -> None:
    pytest.importorskip("cloudpickle")
    factor, local = 3, {} if name is None else {"name": name, "processes": 2}
    with parallel_config(**LOCAL, client=make_client(codec="cloudpickle"), **local):
        assert Parallel()(delayed(lambda number: number * factor)(number) for number in range(4)) == [0, 3, 6, 9]
    with parallel_config(**LOCAL, client=make_client(), **local):
        with pytest.raises(pickle.PicklingError, match=r"cannot be sent.*lambda.*codec=.cloudpickle"):
            Parallel()(delayed(lambda: None)() for _ in range(4))
        with pytest.raises((pickle.PicklingError, AttributeError), match="^(?!a call cannot be sent)"):  # the result
            Parallel()(delayed(remote_pool.some_lambda)() for _ in range(4))


def test_large_argument_raises_an_error_that_names_the_limit(unreachable: Client) -> None:
    with parallel_config(**LOCAL, max_payload=10_000):
        with pytest.raises(PayloadTooLargeError, match=r"max_payload= of the backend.*10000 bytes"):
            Parallel()(delayed(remote_pool.same)(bytes(20_000)) for _ in range(4))


def test_parameters_of_the_backend_are_checked(unreachable: Client) -> None:
    with pytest.raises(TypeError, match="a_misspelt_one"):
        parallel_config("distsync", a_misspelt_one=1)
    with pytest.raises(ValueError, match="processes is for pools with a name"):
        parallel_config("distsync", processes=1)
    with pytest.raises(TypeError, match=r"give client=, name= to joblib.parallel_config"):
        joblib.parallel.BACKENDS["distsync"]().configure(2, None, name="p", client=None, verbose=0)


def test_forked_child_has_processes_of_its_own(unreachable: Client) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child() -> None:
        theirs.send(squares(5))

    with parallel_config(**LOCAL):
        squares(2)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONWARNINGS", "ignore")
            process = context.Process(target=child)
            process.start()
        assert ours.poll(LONG)
        assert ours.recv() == [0, 1, 4, 9, 16]
        process.join()
    ours.close()
    theirs.close()


# ---- with a name


def test_pool_without_a_worker_raises_an_error_that_says_how_to_start_one(client: Client) -> None:
    with parallel_config("distsync", name="p", wait_for_workers=UNIT):
        with pytest.raises(DeadlineError, match=r"no worker after .* s; start some: python -m distsync worker p"):
            squares(3, n_jobs=2)


def test_all_jobs_are_as_many_as_there_are_workers(client: Client) -> None:
    with Executor(3, name="p") as executor, parallel_config("distsync", name="p", wait_for_workers=LONG):
        eventually(lambda: joblib.effective_n_jobs(-1) == 3, limit=LONG)
        busy = [executor.submit(remote_pool.wait_for, name) for name in "ab"]
        for name in "ab":
            assert Event(name=f"{name}-begun").wait(LONG)
        eventually(lambda: joblib.effective_n_jobs(-1) == 3)
        assert (joblib.effective_n_jobs(None), joblib.effective_n_jobs(-2), joblib.effective_n_jobs(-9)) == (3, 2, 2)
        for name in "ab":
            Event(name=name).set()
        assert len({future.result(LONG) for future in busy}) == 2


def test_call_inside_of_a_task_of_the_same_pool_does_not_wait_for_a_worker(client: Client) -> None:
    with Pool(1, name="p") as pool:
        worker, found = pool.apply(joblib_calls.nested_pids, ("distsync", "p"))
        assert set(found) == {worker}
    pool.join()


def test_failed_call_leaves_no_task_and_no_caller(client: Client, observer: Observer, tmp_path: Path) -> None:
    path = client.path("pool", "p")
    with Pool(1, name="p"), parallel_config("distsync", name="p", n_jobs=2, wait_for_workers=LONG):
        calls = [delayed(remote_pool.raise_it)(KeyError("x"))]
        calls += [delayed(joblib_calls.note)(tmp_path, number, UNIT) for number in range(50)]
        with pytest.raises(KeyError, match="x"):
            Parallel(batch_size=1, pre_dispatch="all")(calls)
        eventually(lambda: not [each for each in observer.tree(path) if "/i_" in each or "/claims/" in each])
        assert len(list(tmp_path.iterdir())) < 50
        assert squares(3) == [0, 1, 4]
        assert len(observer.kazoo.get_children(f"{path}/callers")) == 2
    eventually(lambda: not observer.kazoo.get_children(f"{path}/callers"))


@pytest.mark.slow("starts Python several times, with scikit-learn")
def test_grid_search_of_scikit_learn_runs_on_the_workers_of_two_commands(
    client: Client, shells: Shells, observer: Observer, tmp_path: Path
) -> None:
    noting_tree: Any = pytest.importorskip("helpers.remote_functions.noting_tree")  # it imports scikit-learn
    from sklearn.datasets import make_classification
    from sklearn.model_selection import GridSearchCV

    data = make_classification(80, 6, random_state=0)
    commands = [shells.start("-m", "distsync", "worker", "jobs", "--processes", "1") for _ in range(2)]
    waiting = f"{client.path('pool', 'jobs')}/getters"
    eventually(lambda: len(observer.tree(waiting)) == 2, limit=LONG)

    def search(folder: Path, n_jobs: int) -> tuple[Any, set[int]]:
        folder.mkdir()
        found = GridSearchCV(noting_tree.NotingTree(str(folder)), {"max_depth": [1, 2, 3, 4]}, cv=3, n_jobs=n_jobs)
        found.fit(*data)
        return found, {int(path.name) for path in folder.iterdir()}

    here, found = search(tmp_path / "here", 1)
    assert found == {os.getpid()}
    with parallel_config("distsync", name="jobs"):
        there, found = search(tmp_path / "there", -1)
    assert len(found - {os.getpid()}) == 2
    assert there.best_params_ == here.best_params_
    for key in ("mean_test_score", "std_test_score", "rank_test_score"):
        assert list(there.cv_results_[key]) == list(here.cv_results_[key])
    assert list(there.predict(data[0])) == list(here.predict(data[0]))
    for command in commands:
        command.send_signal(signal.SIGTERM)
        printed(command)
