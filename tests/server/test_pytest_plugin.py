"""The pytest plugin in a project that only installs distsync and pytest: pytest runs in a process of
its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers.leak_census import Observer
from helpers.servers import ServerProcess

pytest_plugins = ["pytester"]

USES_ALL = """
import os, subprocess, sys
import distsync
from distsync.queue import Queue
from distsync.threading import Lock

module_level = Lock(name="module level")


def test_lock_is_on_the_server_of_the_tests(distsync_client, distsync_server, distsync_namespace):
    with Lock(name="report") as held:
        assert distsync_client.path("lock", "report").startswith(distsync_namespace)
        assert distsync_server.counts().ephemerals >= 1
    with module_level:
        pass
    assert distsync.default_client() is distsync_client


def test_namespace_is_another_one_for_each_test(distsync_client):
    with module_level:
        assert Queue(name="items").empty()


def test_child_process_finds_the_same_objects(distsync_client):
    program = "from distsync.queue import Queue; Queue(name='items').put(5)"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert Queue(name="items").get(timeout=10) == 5


def test_environment_and_default_client_are_restored():
    assert "DISTSYNC_HOSTS" not in os.environ
    from distsync._client import default_client as default
    assert default.current.client is None
"""

USES_FAULTS = """
import time
import pytest
from distsync import LockLostError
from distsync.testing import OpCode
from distsync.threading import Lock


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_expired(distsync_faults):
    lock = Lock(name="report")
    with pytest.raises(LockLostError):
        with lock:
            distsync_faults.expire()
            until(lambda: not lock.held)


def test_dropped_restarted_and_paused(distsync_client, distsync_faults):
    distsync_faults.drop_connection()
    with Lock(name="report") as lock:
        session = distsync_client.session_id
        dropped = distsync_faults.drop_next_reply()
        with Lock(name="other"):
            assert dropped.is_set()
        never = distsync_faults.drop_next_request(OpCode.SET_ACL)
        distsync_faults.restart()
        with distsync_faults.paused():
            pass
    assert distsync_client.session_id == session
    assert not never.is_set()


def test_left_broken_1(distsync_faults):
    distsync_faults.drop_next_request()
    distsync_faults.refuse_connections()
    distsync_faults.pause()


def test_left_broken_2(distsync_client):
    with Lock(name="report"):
        pass
"""

USES_SHARED = """
import os
from distsync import Counter, Lock


def test_runs_share_a_namespace(distsync_shared, distsync_client):
    assert distsync_shared.hosts == os.environ["SHARED"]
    assert distsync_client.hosts != distsync_shared.hosts
    with Lock(name="report", client=distsync_shared), Lock(name="report"):
        runs = Counter(name="runs", client=distsync_shared)
        runs += 1
        with open("runs", "w") as file:
            file.write(f"{distsync_shared.namespace} {runs.value}")
"""

USES_NOTHING = """
import sys, threading

def test_nothing():
    loaded = sorted(name for name in sys.modules if name.startswith("distsync"))
    private = ["distsync._import_gate", "distsync._version"]
    assert loaded == ["distsync", *private, "distsync.testing", "distsync.testing.pytest_plugin"]
    assert "kazoo" not in sys.modules
    assert threading.active_count() == 1
"""


@pytest.fixture
def apart(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Run pytest in its own process and folder; without the entry point the plugin is named."""
    if not known():
        monkeypatch.setenv("PYTEST_PLUGINS", "distsync.testing.pytest_plugin")
    pytester.makeini("[pytest]\nfilterwarnings = error\n    ignore::DeprecationWarning:kazoo\n")
    return pytester


def known() -> bool:
    """Return whether distsync is installed with its entry point."""
    from importlib.metadata import entry_points

    return any(point.value == "distsync.testing.pytest_plugin" for point in entry_points(group="pytest11"))


def run(apart: pytest.Pytester, program: str, *options: str) -> pytest.RunResult:
    apart.makepyfile(program)
    return apart.runpytest_subprocess("-p", "no:cacheprovider", *options, timeout=60)


def test_fixtures_give_server_namespace_and_default_client(apart: pytest.Pytester) -> None:
    run(apart, USES_ALL).assert_outcomes(passed=4)


def test_faults_happen_and_are_healed_after_the_test(apart: pytest.Pytester) -> None:
    run(apart, USES_FAULTS).assert_outcomes(passed=4)


@pytest.mark.slow
def test_shared_client_uses_the_namespace_of_its_folder_like_other_runs(
    apart: pytest.Pytester, server: ServerProcess, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTSYNC_HOSTS", server.hosts)
    monkeypatch.setenv("SHARED", server.hosts)
    for number in (1, 2):
        run(apart, USES_SHARED).assert_outcomes(passed=1)
        namespace, runs = (apart.path / "runs").read_text().split()
        assert int(runs) == number
    observer.wipe(namespace)
    monkeypatch.setenv("DISTSYNC_NAMESPACE", namespace + "-mine")
    run(apart, USES_SHARED).assert_outcomes(passed=1)
    assert (apart.path / "runs").read_text() == f"{namespace}-mine 1"
    observer.wipe(namespace + "-mine")


def test_example_of_the_documentation_works(apart: pytest.Pytester) -> None:
    page = Path(__file__).parents[2] / "docs" / "testing.md"
    tests, program, _ = re.findall(
        r"```python\n(.*?)```", page.read_text(), re.DOTALL
    )  # _: an ensemble, see tests/ensemble
    run(apart, f"{tests}\n\ndef test_class():\n{textwrap.indent(program, '    ')}").assert_outcomes(passed=4)


def test_run_without_fixtures_loads_only_the_plugin(apart: pytest.Pytester) -> None:
    run(apart, USES_NOTHING).assert_outcomes(passed=1)


def test_plugin_adds_fixtures_with_a_docstring_and_nothing_else(apart: pytest.Pytester) -> None:
    listed = run(apart, USES_NOTHING, "--fixtures").stdout
    for name in ("distsync_server", "distsync_namespace", "distsync_client", "distsync_shared", "distsync_faults"):
        listed.fnmatch_lines([f"{name}*"])
    import distsync.testing.pytest_plugin

    assert not [name for name in vars(distsync.testing.pytest_plugin) if name.startswith("pytest_")]


def test_distsync_and_its_test_server_need_no_pytest() -> None:
    program = "import sys, distsync.testing.embedded_server; print('pytest' in sys.modules, '_pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
