"""Faults by name, and a schedule of them from a seed.

When a fault's function returns, the fault has been repaired, or repairs itself.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from chaos.history import CONFIRMED
from chaos.stage import Actor, Stage
from chaos.workloads import WORKLOADS

from distsync.testing import Ensemble, OpCode

CREATES = (OpCode.CREATE, OpCode.CREATE2, OpCode.MULTI)

# ---- to one process


def kill(stage: Stage, actor: Actor, dice: random.Random) -> None:
    actor.kill()
    time.sleep(dice.random())
    actor.start()


def stop(stage: Stage, actor: Actor, dice: random.Random) -> None:
    actor.signal(signal.SIGSTOP)
    time.sleep(stage.beyond_s)
    actor.signal(signal.SIGCONT)


def interrupt(stage: Stage, actor: Actor, dice: random.Random) -> None:
    actor.signal(signal.SIGINT)


def cut(stage: Stage, actor: Actor, dice: random.Random) -> None:
    for link in actor.links:
        link.cut()


def silence(stage: Stage, actor: Actor, dice: random.Random) -> None:
    for link in actor.links:
        link.blackhole()
    time.sleep(dice.choice((0.3, stage.beyond_s)))
    for link in actor.links:
        link.heal()


def refuse(stage: Stage, actor: Actor, dice: random.Random) -> None:
    for link in actor.links:
        link.refuse()
    time.sleep(dice.choice((0.3, stage.beyond_s)))
    for link in actor.links:
        link.heal()


def late(stage: Stage, actor: Actor, dice: random.Random) -> None:
    for link in actor.links:
        link.delay(0.2)
    time.sleep(1.0)
    for link in actor.links:
        link.delay(0.0)


def drop_reply(stage: Stage, actor: Actor, dice: random.Random) -> None:
    opcode = dice.choice((None, *CREATES))
    for link in actor.links:
        link.drop_next_reply(opcode)


def drop_request(stage: Stage, actor: Actor, dice: random.Random) -> None:
    opcode = dice.choice((None, *CREATES))
    for link in actor.links:
        link.drop_next_request(opcode)


def expire(stage: Stage, actor: Actor, dice: random.Random) -> None:
    try:
        actor.expire()
    except OSError:  # no server is there, the other lane has seen to that
        stage.note("nobody to expire it over")
    else:
        stage.note(CONFIRMED, of=actor.who, lasts=stage.session_s)


def fork(stage: Stage, actor: Actor, dice: random.Random) -> None:
    actor.say("fork")


def clock(stage: Stage, actor: Actor, dice: random.Random) -> None:
    actor.say(f"clock {dice.choice((-3600, 3600))}")


CLIENT_FAULTS: dict[str, Callable[[Stage, Actor, random.Random], None]] = {
    each.__name__: each
    for each in (kill, stop, interrupt, cut, silence, refuse, late, drop_reply, drop_request, expire, fork, clock)
}


# ---- to the servers


def server_killed(stage: Stage, dice: random.Random) -> None:
    """The leader, where there are several."""
    server = stage.server
    if isinstance(server, Ensemble):
        server.wait_for_leader().kill()
    else:
        server.kill()
    time.sleep(dice.random())
    server.start()


def server_paused(stage: Stage, dice: random.Random) -> None:
    """A follower, where there are several."""
    server = stage.server
    if isinstance(server, Ensemble):
        server = dice.choice(server.followers() or server.servers)
    with server.paused():
        time.sleep(dice.choice((0.3, stage.beyond_s)))


def observer_killed(stage: Stage, dice: random.Random) -> None:
    dice.choice(stage.server.observers).restart(kill=True)


def rolling_restart(stage: Stage, dice: random.Random) -> None:
    stage.server.rolling_restart()


def all_down(stage: Stage, dice: random.Random) -> None:
    stage.server.kill()
    time.sleep(dice.choice((0.3, stage.beyond_s)))
    stage.server.start()


def outage(stage: Stage, dice: random.Random) -> None:
    """Nobody is there for long: the sessions are over for all that their clients know."""
    stage.server.kill()
    time.sleep(stage.outage_s)
    stage.server.start()


def leader_isolated(stage: Stage, dice: random.Random) -> None:
    stage.server.isolate(stage.server.wait_for_leader(), silent=dice.random() < 0.7)
    time.sleep(dice.choice((0.5, 4.0)))
    stage.server.heal()


def follower_isolated(stage: Stage, dice: random.Random) -> None:
    """Its clients reach it still, and are served what it knows, until it sees that it has no leader."""
    stage.server.isolate(dice.choice(stage.server.followers() or stage.server.servers), silent=dice.random() < 0.7)
    time.sleep(dice.choice((0.5, 4.0)))
    stage.server.heal()


def disk_full(stage: Stage, dice: random.Random) -> None:
    dice.choice(stage.server.servers).fill_disk()
    time.sleep(2.0)
    stage.server.heal()


ANYWHERE = (server_killed, server_paused, all_down, outage)
ON_REQUEST = ("outage",)
"""What takes so long that it comes only where it is asked for."""

SERVER_FAULTS: dict[str, dict[str, Callable[[Stage, random.Random], None]]] = {
    "embedded": {each.__name__: each for each in ANYWHERE},
    "zookeeper": {each.__name__: each for each in ANYWHERE},
    "ensemble": {
        each.__name__: each
        for each in (*ANYWHERE, observer_killed, rolling_restart, leader_isolated, follower_isolated, disk_full)
    },
}


# ---- when


STRIKES = ("kill", "stop")
"""What may strike who plays a role: ``kill:holder``."""


def strikes(primitives: Iterable[str]) -> list[str]:
    """Each of these on each role of these workloads."""
    roles = {role: None for primitive in primitives if primitive in WORKLOADS for role in WORKLOADS[primitive].roles}
    return [f"{fault}:{role}" for fault in STRIKES for role in roles]


class Lane(NamedTuple):
    """Faults that come one after the other; two lanes run at a time."""

    names: tuple[str, ...]
    dice: random.Random
    pause_s: float


def lanes(kind: str, seed: str, names: tuple[str, ...], primitives: Iterable[str]) -> list[Lane]:
    """Those of clients and those of servers; ``names``: only these (none: all but those that are to be asked for)."""

    def chosen(all: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in all if name in names or not (names or name in ON_REQUEST))

    both = [
        Lane(chosen([*CLIENT_FAULTS, *strikes(primitives)]), random.Random(f"{seed} clients"), 0.8),
        Lane(chosen(SERVER_FAULTS[kind]), random.Random(f"{seed} servers"), 3.0),
    ]
    return [lane for lane in both if lane.names]


def run_lane(stage: Stage, lane: Lane, over: threading.Event) -> None:
    """One fault after the other, in an order that the seed decides; each name comes before any comes again."""
    dice, left = lane.dice, list[str]()
    while not over.wait(lane.pause_s * (0.5 + dice.random())):
        if not left:
            left = list(lane.names)
            dice.shuffle(left)
        name = left.pop()
        if name in SERVER_FAULTS[stage.kind]:
            stage.note(name)
            SERVER_FAULTS[stage.kind][name](stage, dice)
        else:
            strike(stage, name, dice)
        stage.note(f"{name} over")


def strike(stage: Stage, name: str, dice: random.Random) -> None:
    """Apply a fault to one process: to one that plays the named role at the moment, otherwise to any."""
    fault, _, role = name.partition(":")
    if role:
        actor = stage.caught(role, dice)
        if actor is None:
            stage.note("nobody there", role=role)
            return
    else:
        number, of_holder = dice.randrange(len(stage.actors)), dice.random() < 0.5
        actor = (stage.holder() if of_holder else None) or stage.actors[number]
    stage.note(name, whose=actor.who)
    CLIENT_FAULTS[fault](stage, actor, dice)
