"""The embedded server and ZooKeeper 3.8 are asked the same, by several clients at once, and say the same.

DISTSYNC_DIFFERENTIAL is the number of random scripts, and after a colon the seed of the first: 2000:500. The same seed
is the same script in each run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

import pytest
from plays import Author
from servers import ZooKeeperProcess, need_zookeeper
from twins import difference, shortened

from distsync.testing import EmbeddedServer

SCRIPTS, FIRST = (int(part or 0) for part in os.environ.get("DISTSYNC_DIFFERENTIAL", "60").partition(":")[::2])
LASTING = 10**9
"""Milliseconds. Nothing is to be reaped while a script runs: when that happens is left to chance."""


class PatientZooKeeper(ZooKeeperProcess):
    """Takes the session time-outs that the embedded server takes, and reaps no containers."""

    def command(self) -> list[str]:
        reaping = "-Dznode.container.checkIntervalMs="
        return [f"{reaping}{LASTING}" if word.startswith(reaping) else word for word in super().command()]

    def _settings(self) -> dict[str, object]:
        return {**super()._settings(), "minSessionTimeout": 1_000, "maxSessionTimeout": 60_000}


@pytest.fixture(scope="module")
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    if request.config.getoption("--server") != "both":
        pytest.skip("it needs both servers")
    need_zookeeper()
    server = PatientZooKeeper(tmp_path_factory.mktemp("twin"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def ports(real: ZooKeeperProcess) -> Iterator[tuple[int, int]]:
    with EmbeddedServer() as embedded:
        engine = embedded._host._rim.engine  # type: ignore[union-attr]
        engine._core.containers_due = 2**62
        yield embedded.address[1], real.port


@pytest.mark.timeout(0)
def test_scripts_have_the_same_answers_and_events_on_both(ports: tuple[int, int]) -> None:
    for seed in range(FIRST, FIRST + SCRIPTS):
        differs = partial(difference, ports, ("embedded", "ZooKeeper"))
        script = Author(seed).script()
        found = differs(script)
        if found:
            pytest.fail(f"seed {seed}: {differs(shortened(script, differs)) or found}", pytrace=False)
