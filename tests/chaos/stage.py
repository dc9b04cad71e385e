"""The stage of chaos: servers, and processes that use them over connections of their own.

Each fault is a method; faults.py decides when, and to which process.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from chaos.history import Recorder, read_end
from chaos.roles import latest
from chaos.workloads import ALL

from distsync.testing import EmbeddedServer, Ensemble, Proxy
from distsync.testing.connection_faults import end_session

TESTS = Path(__file__).parents[1]
SESSION_S = 2.0
STOP_S = 60.0
OUTAGE_S = 60.0
CATCH_S = 5.0
"""Seconds after which an awaited event is considered missing."""

NAMESPACE = "/chaos"

SERVERS: dict[str, Callable[[], Any]] = {
    "embedded": lambda: EmbeddedServer(process=True),
    "zookeeper": lambda: Ensemble(1, 0, tick_ms=200),
    "ensemble": lambda: Ensemble(3, 2, tick_ms=200),
}


def addresses(server: Any) -> list[tuple[str, int]]:
    """Of all its servers, past their own proxies."""
    return [each.address for each in server.servers] if isinstance(server, Ensemble) else [server.address]


class Actor:
    """A process that works, behind a link of its own to each server."""

    def __init__(self, stage: Stage, name: str, workload: str, role: int) -> None:
        self.stage, self.name, self.workload, self.role = stage, name, workload, role
        self.links = [Proxy("{}:{}".format(*address)) for address in addresses(stage.server)]
        self.lives = 0
        self.process: subprocess.Popen[str] | None = None

    @property
    def who(self) -> str:
        """Each life has a name of its own."""
        return f"{self.name}.{self.lives}"

    @property
    def file(self) -> Path:
        """Where its present life is written down."""
        return self.stage.folder / f"{self.who}.jsonl"

    def start(self) -> None:
        self.lives += 1
        spec = {
            "who": self.who,
            "role": self.role,
            "workload": self.workload,
            "folder": str(self.stage.folder),
            "hosts": ",".join(link.hosts for link in self.links),
            "namespace": f"{NAMESPACE}/{self.workload}",
            "session_timeout": self.stage.session_s,
            "poll_s": self.stage.poll_s,
            "seed": f"{self.stage.seed} {self.who}",
        }
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        with open(self.stage.folder / f"{self.who}.log", "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "chaos.worker", json.dumps(spec)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )

    def say(self, line: str) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.stage.note(f"{self.who} has ended by itself")

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def plays(self, role: str) -> bool:
        """By what it has written down last."""
        asked = ALL[self.workload].roles.get(role)
        call = latest(read_end(self.file)) if asked else None
        return call is not None and asked is not None and asked(call)

    def halt(self) -> None:
        """Suspend it with all its threads until ``resume``."""
        if self.process is not None:
            self.signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        """It is dead."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def kill_all(self) -> None:
        """It is dead, and so is what it has forked."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.kill()

    def stop(self) -> str:
        """It has ended in good order; or what was the matter."""
        self.say("stop")
        assert self.process is not None
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"{self.who} did not end within {STOP_S:.0f} s"
        code = self.process.returncode
        self.process.communicate()
        self.process = None
        return "" if code == 0 else f"{self.who} ended with {code}: {self.output()}"

    def output(self) -> str:
        return (self.stage.folder / f"{self.who}.log").read_text(errors="replace")[-2000:]

    def expire(self) -> None:
        """The sessions that came over its links are over."""
        server = self.stage.server
        for link in self.links:
            for id in link.sessions()[-1:]:
                whom = server.wait_for_leader() if isinstance(server, Ensemble) else server
                end_session(whom.address, [link], id)

    def close(self) -> None:
        self.kill_all()
        for link in self.links:
            link.close()


class Stage:
    """Servers of a kind, actors, and what is done to them, all of it written down in ``folder``. ``server``: one that
    runs, and stays; None: one of its own. ``outage_s``: how long an outage lasts."""

    def __init__(
        self,
        kind: str,
        folder: Path,
        seed: int,
        poll_s: float = 0.002,
        server: Any = None,
        outage_s: float = OUTAGE_S,
        session_s: float = SESSION_S,
    ) -> None:
        self.outage_s, self.session_s = outage_s, session_s
        self.kind, self.folder, self.seed, self.poll_s = kind, folder, seed, poll_s
        self.recorder = Recorder(folder, "chaos")
        self.recorder.write(servers=kind, session=session_s)
        self.server = server or SERVERS[kind]()
        self.stays = server is not None
        self.actors: list[Actor] = []

    def __enter__(self) -> Stage:
        try:
            if not self.stays:
                self.server.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing of it remains but its folder."""
        for actor in self.actors:
            actor.close()
        if not self.stays:
            self.server.close()
        self.recorder.close()

    def add(self, workload: str, count: int) -> None:
        """So many more actors; they have started."""
        for role in range(count):
            actor = Actor(self, f"{workload}{role}", workload, role)
            self.actors.append(actor)
            actor.start()

    def note(self, fault: str, **fields: Any) -> None:
        self.recorder.write(fault=fault, **fields)

    def holder(self) -> Actor | None:
        """Return the process that claimed last that it holds, or has got, something."""
        ages = [(os.stat(actor.file).st_mtime, actor) for actor in self.written()]
        return max(ages, key=lambda each: each[0])[1] if ages else None

    @property
    def beyond_s(self) -> float:
        """A process that is silent for so long has lost its session."""
        return 1.6 * self.session_s

    def playing(self, role: str) -> list[Actor]:
        """Return the processes that play the role, according to their records."""
        return [actor for actor in self.actors if actor.plays(role)]

    def caught(self, role: str, dice: random.Random) -> Actor | None:
        """Return a process that plays the role, suspended, so that the role is still valid when the
        fault hits; None if none does for a while.

        It is suspended first and checked again then; a process that has moved on in between is
        resumed.
        """
        until = time.monotonic() + CATCH_S
        while time.monotonic() < until:
            for actor in dice.sample(playing := self.playing(role), len(playing)):
                actor.halt()
                if actor.plays(role):
                    return actor
                actor.signal(signal.SIGCONT)
            time.sleep(self.poll_s)
        return None

    def written(self) -> Iterator[Actor]:
        return (actor for actor in self.actors if actor.file.exists())

    def heal(self) -> None:
        """All is well."""
        for actor in self.actors:
            for link in actor.links:
                link.disarm()
                link.heal()
            actor.signal(signal.SIGCONT)
            if actor.process is None or actor.process.poll() is not None:
                actor.start()
        self.server.heal()
