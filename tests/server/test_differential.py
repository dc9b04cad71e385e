"""The embedded server and ZooKeeper 3.8 give the same replies to several clients at once; so does 3.9,
where it equals 3.8 (helpers/random_scripts.py).

DISTSYNC_TEST_DIFFERENTIAL is the number of random scripts, and after a colon the seed of the first:
2000:500. The same seed gives the same script in each run. Two more servers reap at short intervals;
every twentieth script uses them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from helpers.custom_server import TunedProcess
from helpers.differential import difference, shortened
from helpers.random_scripts import SUPER, Author
from helpers.servers import ServerProcess, ZooKeeperProcess, need_zookeeper

from distsync._server.acl import digest_of

SCRIPTS, FIRST = (int(part or 0) for part in os.environ.get("DISTSYNC_TEST_DIFFERENTIAL", "25").partition(":")[::2])
EACH_REAPING = 20
LASTING, SHORT = 10**9, 100
"""Milliseconds between two looks for what is to be reaped."""


class TwinOfZooKeeper(ZooKeeperProcess):
    """A server that accepts the session timeouts of the embedded server."""

    def __init__(self, folder: Path, reaping_ms: int) -> None:
        super().__init__(folder)
        self.properties = {
            "znode.container.checkIntervalMs": reaping_ms,
            "zookeeper.DigestAuthenticationProvider.superDigest": digest_of(SUPER),
            "zookeeper.enforceQuota": "true",
        }

    def command(self) -> list[str]:
        java, *others = super().command()
        others = [other for other in others if "checkIntervalMs" not in other]
        return [java, *(f"-D{key}={value}" for key, value in self.properties.items()), *others]

    def _settings(self) -> dict[str, object]:
        return {**super()._settings(), "minSessionTimeout": 1_000, "maxSessionTimeout": 60_000}


def twins(folder: Path, reaping_ms: int) -> list[ServerProcess]:
    tuning = {"super_digest": digest_of(SUPER), "enforce_quota": True, "reaping_seconds": reaping_ms / 1000}
    return [TunedProcess(folder / "embedded", **tuning), TwinOfZooKeeper(folder / "zookeeper", reaping_ms)]


@pytest.fixture(scope="module")
def pairs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[bool, list[ServerProcess]]]:
    """Return the two servers; under True, those that reap at short intervals."""
    if request.config.getoption("--server") != "both":
        pytest.skip("it needs both servers")
    need_zookeeper()
    folder = tmp_path_factory.mktemp("twins")
    running = {reaps: twins(folder / str(reaps), ms) for reaps, ms in ((False, LASTING), (True, SHORT))}
    for server in (*running[False], *running[True]):
        server.start()
    yield running
    for server in (*running[False], *running[True]):
        server.kill()


@pytest.mark.timeout(0)
def test_scripts_have_the_same_replies_and_events_on_both_servers(pairs: dict[bool, list[ServerProcess]]) -> None:
    newer = pairs[False][1].version >= (3, 9)
    ports = {reaps: [server.port for server in pair] for reaps, pair in pairs.items()}
    for seed in range(FIRST, FIRST + SCRIPTS):
        reaps = seed % EACH_REAPING == 0
        differs = partial(difference, ports[reaps], ("embedded", "ZooKeeper"))
        script = Author(seed, reaps, newer).script()
        found = differs(script)
        if found:
            pytest.fail(f"seed {seed}: {differs(shortened(script, differs)) or found}", pytrace=False)
