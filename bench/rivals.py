"""Other rivals with weaker guarantees: multiprocessing.Manager, and redis if it is installed."""

from __future__ import annotations

import importlib.util
import multiprocessing
import multiprocessing.managers
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.harness import Place

LOCAL, LOCAL_RLOCK, MANAGER, REDIS = "multiprocessing.Lock", "multiprocessing.RLock", "Manager", "redis"
LESS = {
    LOCAL: "one machine; a holder that is killed never releases it",
    LOCAL_RLOCK: "as multiprocessing.Lock",
    MANAGER: "one machine, in the memory of one process; a holder that is killed never releases its lock",
    REDIS: "one server, which loses the last second when its machine fails; a lock is a timeout, whether its holder is "
    "alive or not, without order; a popped item is lost with its getter",
}
SERVER = "redis-server"


def manager(place: Place) -> multiprocessing.managers.SyncManager:
    return place.stack.enter_context(multiprocessing.get_context("spawn").Manager())


def redis(place: Place) -> Any | None:
    """Return a client of a redis server of its own; None if redis is not installed."""
    if not shutil.which(SERVER) or importlib.util.find_spec("redis") is None:
        return None
    return place.stack.enter_context(_redis())


@contextmanager
def _redis() -> Iterator[Any]:
    from redis import Redis

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--appendonly", "yes", "--dir", folder]
        server = subprocess.Popen([SERVER, *options], stdout=subprocess.DEVNULL)
        client = Redis(port=port)
        try:
            _until_it_answers(client, server)
            yield client
        finally:
            client.close()
            server.terminate()
            server.wait()


def _until_it_answers(client: Any, server: subprocess.Popen[bytes]) -> None:
    from redis.exceptions import ConnectionError

    while server.poll() is None:
        try:
            client.ping()
            return
        except ConnectionError:
            time.sleep(0.02)
    raise RuntimeError(f"{SERVER} ended with {server.returncode}")
