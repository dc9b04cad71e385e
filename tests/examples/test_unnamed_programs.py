"""Programs that create their objects in functions and instances, started twice with swapped imports."""

from __future__ import annotations

import json
import subprocess
import textwrap
from pathlib import Path

import pytest
from helpers.subprocesses import LIMIT, Shells

RUN = ("-m", "distsync", "run")

PROGRAMS = """
    import json, queue, sys, threading
    from dataclasses import dataclass, field
    from queue import Queue
    from threading import BoundedSemaphore, Condition, Lock, RLock, Semaphore

    class Account:
        def __init__(self):
            self.lock = Lock()

    class Buffer:
        def __init__(self):
            self.mutex = threading.RLock()
            self.changed = Condition(self.mutex)

    @dataclass
    class Job:
        done: threading.Event = field(default_factory=threading.Event)

    def philosophers():
        return [Lock() for _ in range(3)]

    def guarded():
        lock: RLock = RLock()
        def enter():
            return lock
        return enter

    def pools():
        slots, tickets = BoundedSemaphore(1), Semaphore(1)
        return slots, tickets

    def jobs():
        q = queue.Queue()
        return q

    def results():
        global found
        found = Queue(maxsize=5)
        return found

    def main(is_first):
        account, buffer, job, forks, (slots, tickets) = Account(), Buffer(), Job(), philosophers(), pools()
        locks = [account.lock, buffer.changed, *forks, guarded()(), slots, tickets]
        queues = [jobs(), results()]
        if is_first:
            for lock in [*locks[:2], forks[1], *locks[5:]]:
                lock.acquire()
            for each in queues:
                each.put("from the first")
            job.done.set()
            print("ready", flush=True)
            sys.stdin.read()
        else:
            gained = [lock.acquire(blocking=False) for lock in locks]
            print(json.dumps([gained, [each.get(timeout=60) for each in queues], job.done.is_set()]))

    main("first" in sys.argv)
"""


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, errors
    return output, errors


def test_in_site_mode_objects_of_functions_and_instances_are_shared_with_another_process(
    shells: Shells, tmp_path: Path
) -> None:
    shells.environment["DISTSYNC_UNNAMED"] = "site"
    script = tmp_path / "programs.py"
    script.write_text(textwrap.dedent(PROGRAMS))
    first = shells.start(*RUN, script, "first")
    assert first.stdout is not None
    assert first.stdout.readline() == "ready\n", first.communicate()
    gained, items, is_set = json.loads(shells.run(*RUN, script))
    ended(first)
    assert gained == [False, False, True, False, True, False, False, False]
    assert (items, is_set) == (["from the first"] * 2, True)


@pytest.mark.parametrize(
    ("options", "module"), [(RUN, "threading"), ((*RUN, "--report"), "threading"), ((), "distsync.threading")]
)
def test_by_default_a_lock_of_an_instance_warns_with_its_line_and_is_not_shared(
    shells: Shells, tmp_path: Path, options: tuple[str, ...], module: str
) -> None:
    shells.environment.update(DISTSYNC_UNNAMED="", PYTHONWARNINGS="default::UserWarning")
    script = tmp_path / "app.py"
    script.write_text(
        textwrap.dedent(f"""\
        import sys
        from {module} import Lock

        class App:
            def __init__(self):
                self.lock = Lock()

        for app in (App(), App()):
            assert app.lock.acquire(blocking=False)
        print("ready", flush=True)
        sys.stdin.read()
    """)
    )
    processes = [shells.start(*options, script) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
    for process in processes:
        _, errors = ended(process)
        assert errors.count("PrivateObjectWarning") == 1
        assert errors.startswith(f"{script}:6: PrivateObjectWarning: distsync.threading.Lock created at {script}:6 is")
        report = f"run: created: {script}:6: 2 distsync.threading.Lock without a name, private to this process\n"
        assert (report in errors) == ("--report" in options)
