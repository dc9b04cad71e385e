"""RateLimiter: no span of time uses more tokens than allowed, and without a fault none is lost.

When a token was used is known only to lie within its call, so a span counts the calls that lie
entirely within it.
"""

from __future__ import annotations

from simulation.engine.call_frames import Run
from simulation.engine.invariants import Check
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation
from simulation.engine.transcript import Record
from simulation.scenarios.common import ROOT, Scenario, processes, receipts, spawn, work

from distsync._protocols.state.token_bucket import RateCore

PATH = f"{ROOT}/rate/r"
#: Maximum duration of a call whose tokens are available, without a fault.
PROMPT_MS = 3_000


class Rate(Check):
    """Check each span of time that ends with a granted call; a task records ``asking`` and
    ``granted``.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self.rate = rate
        self.burst = burst
        self.asked: dict[str, int] = {}
        self.used: list[tuple[int, int]] = []
        """Start time and tokens of each granted call, in the order of completion."""

    def see(self, world: Simulation, record: Record) -> None:
        if record.event == "asking":
            self.asked[record.task] = world.now_ms
        elif record.event == "granted":
            self.used.append((self.asked[record.task], record.tokens))
            self._judge(world)

    def _judge(self, world: Simulation) -> None:
        for begin in {begin for begin, _ in self.used}:
            used = sum(tokens for begun, tokens in self.used if begun >= begin)
            allowed = self.burst + self.rate * (world.now_ms - begin + 1) / 1000  # clocks count whole milliseconds
            if used > allowed + 1e-6:
                span = f"from {begin} to {world.now_ms} ms"
                world.fail(f"{used} tokens were used {span}, {allowed:.3f} are allowed")


async def user(world: Simulation, process: SimProcess, rate: float, burst: int) -> None:
    """Acquire tokens a few times."""
    core = process.local(PATH, lambda: RateCore(PATH, rate, float(burst), receipts(process)))
    for _ in range(world.rng.randint(1, 5)):
        tokens = world.rng.randint(1, burst)
        seconds = world.rng.choice((None, None, None, 0.0, 0.1, 1.0))
        if world.rng.random() < 0.3:
            await Run(work(world))
        world.record("asking", tokens=tokens)
        if await Run(core.acquire(float(tokens), seconds), seconds):
            world.record("granted", tokens=tokens)


def run(world: Simulation) -> None:
    rate, burst = world.rng.choice((1.0, 5.0, 40.0, 300.0)), world.rng.choice((1, 1, 2, 5))
    world.checks.append(Rate(rate, burst))
    for process in processes(world, 1, 3):
        for _ in range(world.rng.randint(1, 2)):
            spawn(process, user(world, process, rate, burst))
    world.run()
    # a call that times out may lose its tokens
    asked = sum(record.tokens for record in world.history.events("asking"))
    longest_ms = max(0, asked - burst) / rate * 1000 + PROMPT_MS
    if not world.faults.injected and world.done_ms > longest_ms:
        world.fail(f"{asked} tokens took {world.done_ms} ms: some were lost")
    world.close()


RATE = Scenario("token-bucket", run)
