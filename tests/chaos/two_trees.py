"""``python -m chaos.two_trees --cycles 20``: whether ZooKeeper itself keeps one tree when all its
servers are killed.

Only the ensemble of distsync takes part, which starts and kills servers: kazoo's clients write, all
servers are killed at once and started again, and when all serve, their trees are compared with one
another and with what was acknowledged. One of three cycles is only that; in one, all are killed
again during their recovery; in one, the leader was killed before, and has returned.
ZOOKEEPER_CLASSPATH selects the ZooKeeper (docs/development.md).

Writers create and set; nodes are deleted only between two cycles, when all trees are equal.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from distsync.testing import Ensemble

ROOT = "/two-trees"
WRITERS = 6
BATCH = 4
PACE_S = 0.01
ANSWER_S = 5.0
SETTLE_S = 2.0
"""Trees that differ are compared once more after so long."""

Tree = Mapping[str, tuple[Any, ...]]


class Write(NamedTuple):
    """An acknowledged write: this path has this number, or a greater one."""

    path: str
    number: int


# ---- what is compared: pure


def differing(trees: Mapping[str, Tree]) -> list[str]:
    """Paths that are not alike on all servers."""
    paths = {path for tree in trees.values() for path in tree}
    return sorted(path for path in paths if len({tree.get(path) for tree in trees.values()}) > 1)


def lost(acknowledged: list[Write], trees: Mapping[str, Tree]) -> list[str]:
    """Return the acknowledged writes that are missing on some server."""
    return [
        f"{write.path} = {write.number} on {server}"
        for server, tree in trees.items()
        for write in acknowledged
        if write.path not in tree or int(tree[write.path][0]) < write.number
    ]


# ---- who writes


class Writer(threading.Thread):
    """It creates some nodes, and sets one to a greater number, again and again."""

    def __init__(self, hosts: str, number: int) -> None:
        super().__init__(daemon=True)
        retry = {"max_tries": -1, "delay": 0.05, "backoff": 1, "max_delay": 0.1}
        self._client = KazooClient(hosts, timeout=4.0, randomize_hosts=True, connection_retry=retry)
        self._number = number
        self.acknowledged: list[Write] = []
        self.going, self.over = threading.Event(), threading.Event()
        self.idle = threading.Event()

    def run(self) -> None:
        with suppress(KazooTimeoutError):
            self._client.start(timeout=60.0)
        count = 0
        while not self.over.is_set():
            if not self.going.is_set():
                self.idle.set()
                self.going.wait(0.05)
                continue
            self.idle.clear()
            count += 1
            self._write(count)
            time.sleep(PACE_S)
        self._client.stop()
        self._client.close()

    def _write(self, count: int) -> None:
        data, own = str(count).encode(), f"{ROOT}/{self._number}"
        new = [f"{own}-{count}-{number}" for number in range(BATCH)]
        asked = {path: self._client.create_async(path, data) for path in new}
        asked[own] = self._client.set_async(own, data)
        for path, ask in asked.items():
            try:
                ask.get(timeout=ANSWER_S)
            except (KazooException, KazooTimeoutError):  # it may be there or not
                time.sleep(0.01)
            else:
                self.acknowledged.append(Write(path, count))


# ---- an ensemble


@contextmanager
def client_of(address: tuple[str, int]) -> Iterator[KazooClient]:
    client = KazooClient("{}:{}".format(*address), timeout=10.0)
    client.start(timeout=60.0)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def tree_of(address: tuple[str, int]) -> Tree:
    """All below the root, as this server has it when it has caught up with the leader."""
    with client_of(address) as client:
        client.sync(ROOT)
        asked = {name: client.get_async(f"{ROOT}/{name}") for name in client.get_children(ROOT)}
        found = {}
        for name, ask in asked.items():
            data, stat = ask.get(timeout=60.0)
            found[f"{ROOT}/{name}"] = (data.decode(), stat.czxid, stat.mzxid, stat.version)
        return found


def trees_of(ensemble: Ensemble) -> dict[str, Tree]:
    return {f"server {server.number}": tree_of(server.address) for server in ensemble.servers}


def kill_at_once(ensemble: Ensemble) -> None:
    for server in ensemble.servers:
        if server.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(server.pid, signal.SIGKILL)
    ensemble.kill()


class Trial:
    """An ensemble and its writers."""

    def __init__(self, ensemble: Ensemble, seed: str) -> None:
        self.ensemble, self.dice = ensemble, random.Random(seed)
        hosts = ",".join("{}:{}".format(*server.address) for server in ensemble.servers)
        self.clear()
        self.writers = [Writer(hosts, number) for number in range(WRITERS)]
        for writer in self.writers:
            writer.start()

    def cycle(self, kills: int, leader_first: bool = False) -> tuple[list[str], list[str], int]:
        """What differs, what is lost, and how many writes were acknowledged."""
        for writer in self.writers:
            writer.acknowledged = []
            writer.going.set()
        time.sleep(0.5 + self.dice.random())
        if leader_first:
            self.ensemble.wait_for_leader().restart(kill=True)
            self.ensemble.wait_until_serving()
            time.sleep(4.0 * self.dice.random())
        for attempt in range(kills):
            kill_at_once(self.ensemble)
            for server in self.ensemble.servers:
                server.launch()
            if attempt < kills - 1:
                time.sleep(1.0 + 3.0 * self.dice.random())
        self.ensemble.wait_until_serving()
        time.sleep(0.3)
        self._pause()
        acknowledged = [write for writer in self.writers for write in writer.acknowledged]
        trees = trees_of(self.ensemble)
        if differing(trees) or lost(acknowledged, trees):
            time.sleep(SETTLE_S)
            trees = trees_of(self.ensemble)
        return differing(trees), lost(acknowledged, trees), len(acknowledged)

    def _pause(self) -> None:
        for writer in self.writers:
            writer.idle.clear()
            writer.going.clear()
        for writer in self.writers:
            assert writer.idle.wait(60.0), "a writer hangs"

    def clear(self) -> None:
        """Nothing is left of the last cycle, but for the nodes that are set."""
        with client_of(self.ensemble.servers[0].address) as client:
            client.ensure_path(ROOT)
            for ask in [client.delete_async(f"{ROOT}/{name}") for name in client.get_children(ROOT) if "-" in name]:
                ask.get(timeout=60.0)
            for number in range(WRITERS):
                client.ensure_path(f"{ROOT}/{number}")
                client.set(f"{ROOT}/{number}", b"0")

    def close(self) -> None:
        for writer in self.writers:
            writer.over.set()
        for writer in self.writers:
            writer.join()


def version_of(ensemble: Ensemble) -> str:
    return str(ensemble.servers[0].status().version)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chaos.two_trees", description=__doc__)
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--participants", type=int, default=3)
    parser.add_argument("--observers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    done = diverged = losing = 0
    version = ""
    while done < chosen.cycles:  # on a new ensemble after a cycle that went wrong
        with Ensemble(chosen.participants, chosen.observers, tick_ms=200) as ensemble:
            version, whole = version_of(ensemble), True
            trial = Trial(ensemble, f"{chosen.seed} {done}")
            try:
                while whole and done < chosen.cycles:
                    trial.clear()
                    differ, gone, count = trial.cycle(kills=1 + (done % 3 == 1), leader_first=done % 3 == 2)
                    done += 1
                    whole = not differ and not gone
                    diverged, losing = diverged + bool(differ), losing + bool(gone)
                    text = f"{len(differ)} paths differ, {len(gone)} are lost: {[*differ, *gone][:6]}"
                    print(f"cycle {done}: {count} writes acknowledged; {'all alike' if whole else text}", flush=True)
            finally:
                trial.close()
    print(f"ZooKeeper {version}: {done} cycles, trees diverged in {diverged}, acknowledged writes lost in {losing}")
    sys.exit(bool(diverged or losing))


if __name__ == "__main__":
    main()
