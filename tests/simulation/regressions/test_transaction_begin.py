"""However the begin of a transaction fails, it leaves none open for which a site would wait in vain."""

from __future__ import annotations

import pytest
from simulation.engine.call_frames import Run
from simulation.engine.faults import Exactly, Faults
from simulation.engine.process import SimProcess
from simulation.engine.simulation import Simulation

from distsync._protocols.transactions.coordinator import TransactionCore
from distsync._protocols.transactions.vote_records import COORDINATOR, TransactionConfig
from distsync.errors import DeadlineError, MismatchError

PATH = "/distsync/transaction/t"
TERMS = TransactionConfig(("left", "right"), COORDINATOR)


async def begin(process: SimProcess, begun: list[str], timeout: float | None, terms: TransactionConfig = TERMS) -> None:
    core = process.local(PATH, lambda: TransactionCore(PATH, terms=terms))
    begun.append(await Run(core.begin(b"payload"), timeout))


def open_transactions(world: Simulation) -> list[str]:
    return [path for path in world.leftovers() if path.startswith(f"{PATH}/t_") and path.endswith("/open")]


@pytest.mark.parametrize("kind", ["interrupt", "deadline", "lost_request", "lost_reply"])
def test_failed_begin_leaves_no_open_transaction(kind: str) -> None:
    failed = 0
    for step in range(1, 25):
        for seed in range(3):
            begun: list[str] = []
            timeout = 5.0 if kind == "deadline" else None
            with Simulation(seed, faults=Faults(exactly=(Exactly(kind, "one", step),))) as world:
                one = world.process("one")
                beginning = one.spawn(begin(one, begun, timeout), expected=(DeadlineError,))
                world.run()
                failed += not begun
                assert open_transactions(world) == [f"{PATH}/t_{each}/open" for each in begun], (
                    step,
                    seed,
                    beginning.error,
                )
    assert bool(failed) == (kind == "interrupt")  # replies within the grace period of a deadline count


def test_refused_begin_leaves_the_previous_transaction_unchanged() -> None:
    begun: list[str] = []
    with Simulation(1) as world:
        one, two = world.process("one"), world.process("two")
        one.spawn(begin(one, begun, None))
        world.run()
        before = world.leftovers()
        refused = two.spawn(
            begin(two, begun, 1.0, TransactionConfig(("other",), COORDINATOR)), expected=(MismatchError,)
        )
        world.run()
        assert isinstance(refused.error, MismatchError)
        assert world.leftovers() == before
