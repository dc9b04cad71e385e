"""Two programs that were started apart share ``Lock(name="x")``: without any configuration, and with DISTSYNC_HOSTS."""

from __future__ import annotations

import pytest
from helpers.subprocesses import Home, Shells
from helpers.timing import UNIT

HOLD = """
from distsync.threading import Lock
lock = Lock(name="x")
with lock:
    print("held", flush=True)
    input()
print("released", flush=True)
input()
"""

TRY = f"""
from distsync.threading import Lock
lock = Lock(name="x")
print(lock.acquire(timeout={2 * UNIT}), lock.locked(), len(lock.holders()))
"""


def both_share_it(started: Shells) -> None:
    holder = started.start("-c", HOLD)
    assert holder.stdout.readline() == "held\n"
    assert started.run("-c", TRY) == "False True 1\n"
    print(file=holder.stdin, flush=True)
    assert holder.stdout.readline() == "released\n"
    assert started.run("-c", TRY) == "True True 1\n"
    assert holder.communicate("\n")[1] == ""


def test_two_shells_without_configuration_share_a_lock(home: Home) -> None:
    both_share_it(home)


@pytest.mark.slow("starts several programs")
def test_two_shells_with_hosts_share_a_lock(shells: Shells) -> None:
    both_share_it(shells)
