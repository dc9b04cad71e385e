"""Pools: what remains of their znodes, and a worker in a thread."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distsync._client.client import Client
from distsync.multiprocessing._pool.pool_codec import LIMIT_BYTES
from distsync.multiprocessing._pool.pool_worker import Worker
from distsync.multiprocessing._pool.worker_base import READY, WorkerSpec, client_with
from distsync.multiprocessing.pool import MAX_DELIVERIES
from helpers.leak_census import Observer


def remaining(pool: Any, observer: Observer) -> list[str]:
    """Return the znodes that remain of tasks, claims, callers and waiting workers."""
    parts = ("/callers/", "/claims/", "/i_", "/getters/")
    return [path for path in observer.tree(pool.path) if any(part in path for part in parts)]


def worker_spec(client: Client, name: str) -> WorkerSpec:
    """Return the configuration of a worker of the command line.

    Args:
        client: The client with the settings.
        name: Name of the pool.
    """
    return WorkerSpec(client.settings, client.path("pool", name), LIMIT_BYTES, MAX_DELIVERIES, default=False)


@contextmanager
def running_worker(client: Client, name: str) -> Iterator[Worker]:
    """Run a worker like those of the command line in a thread, with a client of its own.

    Args:
        client: The client with the settings.
        name: Name of the pool.
    """
    ours, theirs = multiprocessing.Pipe()
    own_client = client_with(client.settings)
    made = Worker(worker_spec(client, name), own_client, theirs)
    thread = threading.Thread(target=made.work)
    thread.start()
    assert ours.recv() == (READY, None)
    yield made
    made.drain()
    thread.join()
    own_client.close()
    ours.close()
    theirs.close()
