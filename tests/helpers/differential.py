"""Run scripts (random_scripts.py) on a server and record all its output, so that two servers can be
compared.

Unavoidable differences are normalized: zxids count from the script's beginning, a session is named
after the place of its creation, times are relative, and what ZooKeeper leaves open is sorted:
children, identities, and the events of a closed session. The zxid of an event is left out:
ZooKeeper sends it from 3.9 on, and -1 before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from distsync._wire import records as r
from distsync._wire.codes import ErrorCode
from helpers.frame_client import Link, says
from helpers.random_scripts import CLIENTS, Ask, Close, Expire, Reap, Reconnect, Step
from helpers.script_client import END, Client
from helpers.timing import eventually

ENDS_CONNECTIONS = (r.AuthRequest, r.UnknownRequest, r.MalformedRequest, r.ReconfigRequest)
"""After these a ping shows whether the connection is still there."""

SHORT_TIMEOUT_MS = 1_000
PATHS = ("path", "prefix_path")


class Play:
    """One script on one server. ``transcript`` has a list for each step: what each client received."""

    def __init__(self, port: int, number: int) -> None:
        self.port = port
        self.root = f"/d{number}"
        self.clients = [Client(port) for _ in range(CLIENTS)]
        self.sessions: dict[int, str] = {}
        self.base = 0
        self.skipped: list[int] = []
        self.transcript: list[list[Any]] = []

    def run(self, script: Iterable[Step]) -> list[list[Any]]:
        try:
            self._begin()
            for step in script:
                self.transcript.append(list(self._alike(self._heard(step))))
            self.transcript.append(list(self._alike(self._flushed(sort=False))))
        finally:
            self._end()
        return self.transcript

    def _begin(self) -> None:
        first = self.clients[0]
        first.connect(first.hello())
        (made,) = first.ask(r.Create2Request(self.root))
        self.base = made[3].stat.czxid - 1
        self.sessions[first.session.session_id] = "session 1"

    def _heard(self, step: Step) -> Iterator[tuple[int, Any]]:
        client = self.clients[step.who]
        if isinstance(step, Reconnect):
            yield from self._reconnected(step, client)
            return
        if client.link is None:
            yield step.who, self._connected(client, client.hello())
            if client.link is None:
                return
        if isinstance(step, Close):
            yield from self._closed(step.who, client)
        elif isinstance(step, Expire):
            yield from self._expired(step.who, client)
        elif isinstance(step, Reap):
            yield from self._reaped(step, client)
        else:
            yield from self._asked(step, client)

    def _connected(self, client: Client, hello: r.ConnectRequest) -> Any:
        answer = client.connect(hello)
        if isinstance(answer, r.ConnectResponse) and answer.session_id:
            self.sessions.setdefault(answer.session_id, f"session {len(self.sessions) + 1}")
        return answer

    def _reconnected(self, step: Reconnect, client: Client) -> Iterator[tuple[int, Any]]:
        if client.session.session_id == 0:
            return
        old = client.link
        if step.hangs_up:
            client.leave()
        else:
            yield from self._flushed(sort=False)
            old = client.link
        zxid = 0 if step.zxid is None else self._real(step.zxid)
        client.link = None
        yield step.who, self._connected(client, client.hello(zxid, step.right_password))
        if not step.hangs_up and old is not None:
            yield step.who, self._fate(client, old)

    def _fate(self, client: Client, old: Link) -> str:
        """Return what happened to the connection whose session another one took, or tried to."""
        if client.link is None:
            client.link = old
            return "the old connection continues"
        gone = old.at_end()
        old.close()
        return END if gone else "the old connection says something"

    def _closed(self, who: int, client: Client) -> Iterator[tuple[int, Any]]:
        yield from self._flushed(sort=False)
        if client.link is None:
            return
        *events, reply = client.ask(r.CloseSessionRequest())
        yield from ((who, heard) for heard in (*sorted(events, key=repr), reply))
        if client.link is not None:
            yield who, END if client.link.at_end() else "the connection continues"
        client.disconnect()
        client.forget()
        yield from self._flushed(sort=True)

    def _expired(self, who: int, client: Client) -> Iterator[tuple[int, Any]]:
        """Its time-out is made short, and it hangs up."""
        yield from self._flushed(sort=False)
        if client.link is None:
            return
        client.leave()
        yield who, client.connect(client.hello(timeout_ms=SHORT_TIMEOUT_MS))
        sessions = self._sessions()
        client.leave()
        eventually(lambda: self._sessions() < sessions)
        yield from self._flushed(sort=True)
        yield who, client.connect(client.hello())
        client.forget()

    def _sessions(self) -> int:
        told = says(self.port, b"mntr").decode()
        return int(told.partition("zk_global_sessions\t")[2].partition("\n")[0])

    def _reaped(self, step: Reap, client: Client) -> Iterator[tuple[int, Any]]:
        path, child = self._path(step.path), self._path(step.path + "/only")
        makes = [r.CreateContainerRequest(path), r.CreateRequest(child), r.DeleteRequest(child, -1)]
        asked = makes if step.container else [r.CreateTtlRequest(path, ttl=1)]
        heard = [one for request in asked for one in client.ask(request)]
        yield from ((step.who, one) for one in heard)
        there = made = all(reply[2] == 0 for reply in heard if isinstance(reply, tuple) and len(reply) == 4)
        client.xid += made
        while there and client.link is not None:
            client.xid -= 1  # how often it asks is not compared
            *events, reply = client.ask(r.ExistsRequest(path))
            yield from ((step.who, one) for one in events)
            there = reply[2] == 0
        if made and client.link is not None:
            *events, reply = client.ask(r.SetDataRequest(path, b""))
            yield from ((step.who, one) for one in events)
            self._skip(heard[-1][1], reply[1])
        yield from self._flushed(sort=False)

    def _skip(self, before: int, after: int) -> None:
        """A ZooKeeper that was held up deletes twice, and the second time uses up a zxid too."""
        self.skipped += [after] * (after - before - 2)

    def _asked(self, step: Ask, client: Client) -> Iterator[tuple[int, Any]]:
        heard = list(client.ask(*map(self._located, step.requests)))
        if isinstance(step.requests[-1], ENDS_CONNECTIONS) and client.link is not None:
            heard += self._pinged(client, client.link, heard[-1][2] == ErrorCode.UNIMPLEMENTED)
        yield from ((step.who, one) for one in heard)

    def _pinged(self, client: Client, link: Link, hangs_up: bool) -> list[Any]:
        """When the server closes the connection, ZooKeeper may answer requests that arrive at that
        moment: such a pong is left out.
        """
        heard = list(client.ask(r.PingRequest()))
        if hangs_up and client.link is not None:
            heard[-1] = END if link.at_end() else "the connection continues"
            client.disconnect()
        return heard

    def _flushed(self, sort: bool) -> Iterator[tuple[int, Any]]:
        """Return what was on its way to each client."""
        for who, client in enumerate(self.clients):
            if client.link is not None:
                *heard, pong = client.ask(r.PingRequest())
                yield from ((who, one) for one in (sorted(heard, key=repr) if sort else heard))
                if isinstance(pong, str):
                    yield who, pong

    def _end(self) -> None:
        """No session remains, since it would expire some time, in another script."""
        for client in self.clients:
            if client.link is None and client.session.session_id:
                client.connect(client.hello())
            if client.link is not None:
                list(client.ask(r.CloseSessionRequest()))
                client.disconnect()

    def _located(self, request: Any) -> Any:
        """With the paths that the server sees, and zxids from the script's beginning."""
        changed: dict[str, Any] = {name: self._path(getattr(request, name)) for name in PATHS if hasattr(request, name)}
        for name in ("data", "exist", "child", "persistent", "recursive"):
            if isinstance(getattr(request, name, None), tuple):
                changed[name] = tuple(map(self._path, getattr(request, name)))
        if hasattr(request, "relative_zxid"):
            changed["relative_zxid"] = self._real(request.relative_zxid)
        if hasattr(request, "operations"):
            changed["operations"] = tuple(map(self._located, request.operations))
        return request._replace(**changed) if changed else request

    def _path(self, path: str) -> str:
        if path.startswith("%"):
            return f"/zookeeper/quota{self.root}{path[1:]}"
        return path[1:] if path.startswith("@") else self.root + path

    # ---- what is made alike

    def _alike(self, heard: Iterable[tuple[int, Any]]) -> Iterator[Any]:
        for who, one in heard:
            if isinstance(one, r.ConnectResponse):
                one = one._replace(session_id=self._session(one.session_id), password=b"")  # type: ignore[arg-type]
            elif isinstance(one, tuple) and len(one) == 4:
                xid, zxid, err, body = one
                one = ("reply", xid, self._zxid(zxid), err, self._body(body))
            elif isinstance(one, tuple):
                one = ("event", one[1])
            yield who, one

    def _body(self, body: Any) -> Any:
        if isinstance(body, r.Stat):
            return self._stat(body)
        if isinstance(body, (r.GetChildrenReply, r.GetChildren2Reply, r.GetEphemeralsReply, r.WhoAmIReply)):
            body = body._replace(**{body._fields[0]: tuple(sorted(body[0]))})
        if isinstance(body, tuple):
            return (type(body).__name__, *map(self._body, body))
        return body

    def _stat(self, stat: r.Stat) -> tuple[Any, ...]:
        return tuple(
            self._zxid(value)
            if name.endswith("zxid")
            else bool(value)
            if name.endswith("time")
            else self._session(value)
            if name == "ephemeral_owner"
            else value
            for name, value in zip(stat._fields, stat, strict=True)
        )

    def _session(self, id: int) -> Any:
        return self.sessions.get(id, id)

    def _zxid(self, zxid: int) -> Any:
        if zxid <= 0 or zxid <= self.base:
            return zxid if zxid <= 0 else "before"
        return zxid - self.base - sum(zxid >= skipped for skipped in self.skipped)

    def _real(self, zxid: int) -> int:
        """The server's, of one from the script's beginning."""
        real = self.base + zxid
        for skipped in self.skipped:
            real += real >= skipped
        return real


_numbers = itertools.count(1)


def difference(ports: Sequence[int], names: tuple[str, str], script: list[Step]) -> str:
    """The first step at which the two servers differ, and what each said; empty where there is none."""
    number = next(_numbers)
    mine, theirs = (Play(port, number).run(script) for port in ports)
    for at, (one, other) in enumerate(itertools.zip_longest(mine, theirs)):
        if one != other:
            steps = "".join(f"\n  {index}: {step}" for index, step in enumerate(script[: at + 1]))
            return f"after{steps}\n{names[0]}:{_lines(one)}\n{names[1]}:{_lines(other)}"
    return ""


def shortened(script: list[Step], differs: Callable[[list[Step]], object]) -> list[Step]:
    """A script that still differs, without most of the steps that have nothing to do with it."""
    size = len(script)
    while size := size // 2:
        for at in reversed(range(0, len(script), size)):
            shorter = script[:at] + script[at + size :]
            if differs(shorter):
                script = shorter
    return script


def _lines(told: list[Any] | None) -> str:
    return "".join(f"\n    {each}" for each in told or ())
