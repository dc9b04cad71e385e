"""One run: actors, faults, and a history that is checked; a failure keeps the history and the command
that repeats it.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.faults import SERVER_FAULTS, Lane, lanes, run_lane
from chaos.history import Event, Recorder, read
from chaos.model import holdings, idle, lateness, violations
from chaos.stage import NAMESPACE, OUTAGE_S, SESSION_S, Stage, addresses
from chaos.worker import Desk
from chaos.workloads import drain

from distsync._client import default_client
from distsync._client.client import Client

WORKERS = 4
SETTLE_S = 60.0


@dataclass(frozen=True)
class Plan:
    """The work and faults of a run; the same plan has the same faults in the same order."""

    primitive: str
    server: str
    seed: int
    seconds: float = 15.0
    faults: tuple[str, ...] = ()
    outage_s: float = OUTAGE_S
    session_s: float = SESSION_S

    def __str__(self) -> str:
        chosen = f" --faults {','.join(self.faults)}" if self.faults else ""
        chosen += f" --outage {self.outage_s:g}" if self.outage_s != OUTAGE_S else ""
        chosen += f" --session {self.session_s:g}" if self.session_s != SESSION_S else ""
        words = f"{self.primitive} --server {self.server} --seed {self.seed} --seconds {self.seconds:g}{chosen}"
        return f"make chaos CHAOS_ARGS='{words}'"


@dataclass
class Outcome:
    """What came of it."""

    plan: Plan
    violations: list[str]
    folder: Path | None
    faults: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    holdings: int = 0
    #: How late the latest call with a time-out ended.
    late: float = 0.0

    def __str__(self) -> str:
        faults = sum(self.faults.values())
        text = f"{self.plan.primitive} on {self.plan.server}, seed {self.plan.seed}: "
        text += f"{self.calls} calls, {self.holdings} holdings, {faults} faults"
        text += f", calls end {self.late:.2f} s late at most"
        if not self.violations:
            return f"ok    {text}"
        wrong = "".join(f"\n      {each}" for each in self.violations[:10])
        return f"WRONG {text}{wrong}\n      the history is in {self.folder}\n      again: {self.plan}"


def run(plan: Plan, folder: Path | None = None, server: Any = None) -> Outcome:
    """Once. ``folder``: where the history stays if something is wrong (None: a temporary one); ``server``: one that
    runs already (None: one of its own)."""
    kept = folder or Path(tempfile.mkdtemp(prefix=f"distsync-chaos-{plan.primitive}-"))
    kept.mkdir(parents=True, exist_ok=True)
    times = {"outage_s": plan.outage_s, "session_s": plan.session_s}
    with Stage(plan.server, kept, plan.seed, server=server, **times) as stage:
        wrong = list(_played(stage, plan))
        alive = [actor.who for actor in stage.actors]
    events = read(kept)
    wrong += violations(plan.primitive, events, alive)
    if not wrong:
        shutil.rmtree(kept)
    names = [call for call in events if "call" in call]
    late = max((late for late, _ in lateness(events)), default=0.0)
    return Outcome(plan, wrong, kept, injected_faults(events), len(names), len(holdings(events)), late)


def injected_faults(events: list[Event]) -> Counter[str]:
    """Count the faults by name, without the ends of faults and other notes."""
    struck = (event for event in events if "whose" in event or event.get("fault") in SERVER_FAULTS["ensemble"])
    return Counter(str(event["fault"]) for event in struck)


def _played(stage: Stage, plan: Plan) -> Iterator[str]:
    stage.add(plan.primitive, WORKERS)
    wait_for_all(stage)
    over = threading.Event()
    chosen = lanes(plan.server, f"{plan.seed} {plan.primitive}", plan.faults, [plan.primitive])
    with ThreadPoolExecutor(max(1, len(chosen)), "chaos") as pool:
        running = [pool.submit(_lane, stage, lane, over) for lane in chosen]
        over.wait(plan.seconds)
        over.set()
    for each in running:
        each.result()
    stage.heal()
    stage.note("calm")
    _settle(stage)
    yield from filter(None, [actor.stop() for actor in stage.actors])
    _drain(stage, plan)


def _lane(stage: Stage, lane: Lane, over: threading.Event) -> None:
    try:
        run_lane(stage, lane, over)
    finally:
        over.set()


def wait_for_all(stage: Stage) -> None:
    """Each has begun."""
    until = time.monotonic() + SETTLE_S
    while len(list(stage.written())) < len(stage.actors) and time.monotonic() < until:
        time.sleep(0.05)


def _settle(stage: Stage) -> None:
    """Each has got something done, or a minute is over: the model says which."""
    until = time.monotonic() + SETTLE_S
    while list(idle(read(stage.folder), [actor.who for actor in stage.actors])) and time.monotonic() < until:
        time.sleep(0.5)


def _drain(stage: Stage, plan: Plan) -> None:
    """Get what is left over a connection that no fault breaks."""
    hosts = ",".join("{}:{}".format(*address) for address in addresses(stage.server))
    with Client(hosts, namespace=f"{NAMESPACE}/{plan.primitive}") as client:
        before = default_client.set_default(client)
        recorder = Recorder(stage.folder, "last")
        try:
            drain(Desk(recorder, random.Random(0)), plan.primitive)
        finally:
            recorder.close()
            default_client.set_default(before)
