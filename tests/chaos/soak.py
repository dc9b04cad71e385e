"""``make soak``: all primitives at once on an ensemble under random faults, for long; nothing may
grow.

Counts are taken when all is well, at the start, after a fifth of the time, and at its end; the last
two are compared.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from chaos.faults import CLIENT_FAULTS, ON_REQUEST, SERVER_FAULTS, lanes, run_lane, strikes
from chaos.history import read
from chaos.model import violations
from chaos.runs import injected_faults
from chaos.stage import NAMESPACE, Actor, Stage, addresses
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

CROWD = {
    "lock": 2,
    "rlock": 2,
    "shared_lock": 3,
    "semaphore": 3,
    "election": 2,
    "queue": 2,
    "joinable": 2,
    "barrier": 3,
    "double_barrier": 3,
    "event": 2,
    "condition": 3,
    "transaction": 3,
}
QUEUES = {"queue": "queue/chaos", "joinable": "joinable_queue/chaos"}
SPARED = ("kill", "fork")
"""A process that is counted at the end must live until then."""

SETTLE_S = 10.0
MEMORY_MB, SHARE = 12.0, 0.25
GROWTH = {"threads": 3, "descriptors": 8, "watches": 60, "znodes": 150, "ephemerals": 40, "sessions": 2}
"""Counts that fluctuate."""

FIGURES = {
    "zk_watch_count": "watches",
    "zk_znode_count": "znodes",
    "zk_ephemerals_count": "ephemerals",
    "zk_global_sessions": "sessions",
}

Count = dict[str, float]


def of_process(actor: Actor) -> Count:
    """What it has open."""
    assert actor.process is not None
    folder = Path("/proc", str(actor.process.pid))
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
    return {
        "memory": int(status["VmRSS"].split()[0]) / 1024,
        "threads": int(status["Threads"]),
        "descriptors": len(os.listdir(folder / "fd")),
    }


def of_servers(stage: Stage) -> Count:
    """Watches are each server's own; the rest all have in common."""
    found: Count = {}
    for server in stage.server.servers:
        told = dict(line.split("\t", 1) for line in server.ask("mntr").splitlines() if "\t" in line)
        for figure, name in FIGURES.items():
            value = float(told.get(figure, 0))
            found[name] = found.get(name, 0) + value if name == "watches" else max(found.get(name, 0), value)
    return found


def counted(stage: Stage) -> dict[str, Count]:
    """All, when everything is well for a while."""
    stage.heal()
    time.sleep(SETTLE_S)
    servers = of_servers(stage)
    servers["znodes"] -= in_queues(stage)
    return {"the servers": servers, **{actor.name: of_process(actor) for actor in stage.actors}}


def in_queues(stage: Stage) -> int:
    """Return the number of znodes of items that were not taken yet, and of their segments: producers
    may be faster than consumers.
    """
    client = KazooClient(",".join("{}:{}".format(*address) for address in addresses(stage.server)))
    client.start()
    try:
        return sum(below(client, f"{NAMESPACE}/{queue}/{QUEUES[queue]}/items") for queue in QUEUES)
    finally:
        client.stop()
        client.close()


def below(client: KazooClient, path: str) -> int:
    """How many znodes there are, of folders and of what is in them."""
    try:
        segments = client.get_children(path)
        return len(segments) + sum(len(client.get_children(f"{path}/{segment}")) for segment in segments)
    except NoNodeError:
        return 0


def grown(before: dict[str, Count], after: dict[str, Count]) -> Iterator[str]:
    for who, counts in after.items():
        for name, count in counts.items():
            was = before[who][name]
            allowed = was + (MEMORY_MB + SHARE * was if name == "memory" else GROWTH[name])
            if count > allowed:
                yield f"{name} of {who}: {was:.0f} before, {count:.0f} now, {allowed:.0f} allowed"


def table(*counts: dict[str, Count]) -> str:
    """Each figure of the servers, and of all processes together, at each time."""
    lines = [f"{'':<12}{'at the start':>14}{'after a fifth':>14}{'at the end':>14}"]
    names = dict.fromkeys(name for count in counts for each in count.values() for name in each)
    for name in names:
        sums = [sum(each[name] for each in count.values() if name in each) for count in counts]
        lines.append(f"{name:<12}" + "".join(f"{each:>14.0f}" for each in sums))
    return "\n".join(lines)


def under_faults(stage: Stage, seed: int, seconds: float, part: str) -> None:
    names = tuple(name for name in (*CLIENT_FAULTS, *SERVER_FAULTS[stage.kind]) if name not in (*SPARED, *ON_REQUEST))
    names += tuple(name for name in strikes(CROWD) if not name.startswith(SPARED))
    over = threading.Event()
    chosen = lanes(stage.kind, f"{seed} {part}", names, CROWD)
    with ThreadPoolExecutor(2, "soak") as pool:
        running = [pool.submit(run_lane, stage, lane, over) for lane in chosen]
        over.wait(seconds)
        over.set()
    for each in running:
        each.result()


def soak(minutes: float, server: str, seed: int, folder: Path) -> list[str]:
    """Return the violations at the end."""
    with Stage(server, folder, seed, poll_s=0.02) as stage:
        for primitive, count in CROWD.items():
            stage.add(primitive, count)
        first = counted(stage)
        under_faults(stage, seed, 12.0 * minutes, "first")
        before = counted(stage)
        under_faults(stage, seed, 48.0 * minutes, "then")
        after = counted(stage)
        stage.note("calm")
        time.sleep(SETTLE_S)
        wrong = [*grown(before, after), *filter(None, [actor.stop() for actor in stage.actors])]
        alive = [actor.who for actor in stage.actors]
    print(table(first, before, after))
    events = read(folder)
    for primitive in CROWD:
        mine = [each for each in events if each["who"].startswith((primitive, "chaos"))]
        found = violations(primitive, mine, [who for who in alive if who.startswith(primitive)])
        left = ("items are lost", "nobody has ever begun")  # what is in a queue at the end is nowhere in the history
        wrong += [f"{primitive}: {each}" for each in found if not any(word in each for word in left)]
    faults = sum(injected_faults(events).values())
    wrong += [] if faults else ["no fault was injected"]
    print(f"{sum('call' in each for each in events)} calls, {faults} faults")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--server", default="ensemble", choices=["zookeeper", "ensemble"])
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="distsync-soak-"))
    wrong = soak(chosen.minutes, chosen.server, chosen.seed, folder)
    if wrong:
        print("\n".join(wrong[:50]), f"the history is in {folder}", sep="\n")
    else:
        shutil.rmtree(folder)
        print("flat")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
