"""``make takeover``: the time without a holder after the holder was killed, and the delay of calls
while no server runs.

For each kind of object, on each kind of server, several times: the holding process is killed, right
after it acquired if possible, when its session has longest to live; the result is the time until
another process holds, less the session timeout. And once all servers are killed for longer than a
session lasts, while calls with timeouts are made: the result is how late they end. Both may be 0.5
s, plus the delay of the process itself, which a control in it measures.
"""

from __future__ import annotations

import argparse
import logging
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from chaos.history import now, read, read_end
from chaos.model import PROMISED_LATE_S
from chaos.roles import latest
from chaos.runs import Plan, run
from chaos.stage import SERVERS, SESSION_S, Actor, Stage
from chaos.workloads import ALL, STAYING

WORKERS = 5
PERMITS = {"Semaphore": 2}
IN_AN_OUTAGE = {"Lock": "lock", "Semaphore": "semaphore", "Election": "election", "JoinableQueue": "joinable"}
"""Which workload says how late calls end."""

PATIENCE_S = 60.0


class Takeover(NamedTuple):
    """Another process held ``seconds`` after the holder was killed; its own delay in that time."""

    seconds: float
    control: float


def takeovers(kind: str, server: str, rounds: int, session_s: float, seed: int, folder: Path) -> Iterator[Takeover]:
    """So many, one after the other."""
    dice = random.Random(f"{seed} {kind}")
    with Stage(server, folder, seed, session_s=session_s) as stage:
        stage.add(kind, WORKERS)
        for _ in range(rounds):
            _wait_until_full(stage, PERMITS.get(kind, 1))
            victim = stage.caught("holder", dice)
            assert victim is not None, f"nobody holds, see {folder}"
            killed = now()
            stage.note("kill:holder", whose=victim.who)
            victim.kill()
            yield _taken(stage, killed)
            victim.start()


def _wait_until_full(stage: Stage, permits: int) -> None:
    """Wait until the maximum number hold, and another one waits."""
    until = time.monotonic() + PATIENCE_S
    while len(stage.playing("holder")) < permits or not stage.playing("waiter"):
        assert time.monotonic() < until, f"nobody holds, or nobody waits, see {stage.folder}"
        time.sleep(stage.poll_s)


def _taken(stage: Stage, killed: float) -> Takeover:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        for actor in stage.actors:
            if (held := _held_since(actor)) > killed:
                late = [event["control"] for event in read(stage.folder) if _is_between(event, actor, killed, held)]
                return Takeover(held - killed, max(late, default=0.0))
        time.sleep(stage.poll_s)
    raise AssertionError(f"nobody has taken over, see {stage.folder}")


def _held_since(actor: Actor) -> float:
    call = latest(read_end(actor.file))
    holds = call is not None and ALL[actor.workload].roles["holder"](call)
    return (call.ended or 0.0) if call is not None and holds else 0.0


def _is_between(event: dict[str, float], actor: Actor, since: float, until: float) -> bool:
    return "control" in event and event["who"] == actor.who and event["t"] > since and event["from"] < until


class Row(NamedTuple):
    """The result of one kind on one server: seconds beyond the session timeout, and beyond timeouts of
    calls.
    """

    kind: str
    server: str
    past: list[float]
    late: float
    wrong: list[str]

    def __str__(self) -> str:
        median, worst = statistics.median(self.past), max(self.past)
        return f"| {self.kind} | {self.server} | {median:+.2f} s | {worst:+.2f} s | {self.late:+.2f} s |"


HEAD = """| object | server | past the session time-out: median | worst | in an outage calls end late: worst |
|---|---|---|---|---|"""


def measured(kind: str, server: str, rounds: int, session_s: float, seed: int) -> Row:
    """One row of the table."""
    with tempfile.TemporaryDirectory(prefix="distsync-takeover-") as folder:
        taken = list(takeovers(kind, server, rounds, session_s, seed, Path(folder)))
    past = [each.seconds - session_s for each in taken]
    promised = session_s + PROMISED_LATE_S
    late = [f"{each} of {kind} on {server}" for each in taken if each.seconds - each.control > promised]
    plan = Plan(IN_AN_OUTAGE[kind], server, seed, 2.0 * session_s + 2.0, ("outage",), 2.0 * session_s, session_s)
    outcome = run(plan)
    return Row(kind, server, past, outcome.late, late + outcome.violations)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make takeover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--session", type=float, default=SESSION_S, help="time-out of sessions, in seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--server", choices=[*SERVERS, "all"], default="all")
    parser.add_argument("kinds", nargs="*", choices=[[], *STAYING], help="these only; none: all")
    chosen = parser.parse_args()
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    print(HEAD, flush=True)
    wrong = []
    for kind in chosen.kinds or STAYING:
        for server in SERVERS if chosen.server == "all" else [chosen.server]:
            row = measured(kind, server, chosen.rounds, chosen.session, chosen.seed)
            print(row, flush=True)
            wrong += row.wrong
    print("\n".join(wrong) or f"all within {PROMISED_LATE_S} s")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
