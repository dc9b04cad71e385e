"""Random scripts for a ZooKeeper server: requests of several clients, one after the other, and their
connections.

There are few paths, so that clients conflict. A path that begins with "/" or is empty is below the
script's own znode; after "@" it is used unchanged, after "%" it is below the quota of the script's
own znode.

Scripts avoid what ZooKeeper 3.8 does not answer, leaves to chance, or fails at: a check outside of
a multi, a time to live with the flags of another create, a container with the flags of an ephemeral
node while other requests are outstanding. A wrong password is shown only after a disconnect:
ZooKeeper ends the connection that has the session. With enforced quotas, requests are sent one at a
time, and a multi has one write: ZooKeeper checks against the applied state.

ZooKeeper 3.9 differs from 3.8, and so from the embedded server, in some points (docs/server.md),
which a script for it (``newer``) avoids.

A server reaps at moments of its own choice: a script for one has no containers or times to live
except those that Reap creates and waits for; other scripts have no Reap.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from distsync._server.acl import digest_of
from distsync._wire import records as r
from distsync._wire.codes import OpCode

CLIENTS = 3


class Ask(NamedTuple):
    """Client ``who`` sends requests, all at once, and waits for their replies."""

    who: int
    requests: tuple[Any, ...]


class Close(NamedTuple):
    """The session of client ``who`` is closed; the client's next step begins another one."""

    who: int


class Reconnect(NamedTuple):
    """Client ``who`` connects again, in its session: after it has hung up, or not. ``zxid`` is the latest that it says
    to have seen, as its distance from the script's beginning."""

    who: int
    hangs_up: bool = True
    right_password: bool = True
    zxid: int | None = None


class Expire(NamedTuple):
    """The session of client ``who`` ends, since nobody has it any more; the client asks for it, then begins another."""

    who: int


class Reap(NamedTuple):
    """Client ``who`` makes a container that loses its only child, or a node that lives for a moment, and waits until it
    is gone."""

    who: int
    path: str
    container: bool


Step = Ask | Close | Reconnect | Expire | Reap

GOOD = ["/a", "/a/b", "/a/b/c", "/c", "/c/d", "/s-", "/a/s-", "/s-0000000003", "/a/s-0000000001", "/e"]
ODD = ["", "/", "/a/", "/a//b", "/.", "/a/..", "/\0", "/a\x01", "/ü", "/\ufff0", "/nobody/here"]
ODD += ["@a", "@/zookeeper", "@/zookeeper/quota", "@/zookeeper/config"]

QUOTA = ["%", "%/zookeeper_limits", "%/zookeeper_stats"]
LIMITS, NO_COUNTS = b"count=5,bytes=20", b"count=0,bytes=0"
HARD_LIMITS = [b"count=4,bytes=9=;byteHardLimit=12;countHardLimit=6", b"count=-1,bytes=-1=;byteHardLimit=5"]
HARD_LIMITS += [b"countHardLimit=3", b"bytes=3=;countHardLimit=4;byteHardLimit=-1"]

OPEN = r.OPEN_ACL
ANN, BOB = b"ann:secret", b"bob:secret"
SUPER = b"super:admin"
"""A super user on both servers, which no ACL restricts."""

ACLS = [
    (r.Acl(1, "world", "anyone"),),
    (r.Acl(30, "world", "anyone"),),
    (r.Acl(31, "auth", ""),),
    (r.Acl(31, "digest", digest_of(ANN)), r.Acl(1, "world", "anyone")),
    (r.Acl(15, "ip", "127.0.0.1"), r.Acl(15, "ip", "127.0.0.1")),
    (r.Acl(31, "ip", "10.0.0.0/8"), r.Acl(16, "world", "anyone")),
    (r.Acl(0, "world", "anyone"),),
    (r.Acl(31, "digest", "no colon"),),
    (r.Acl(31, "ip", "300.1.1.1"),),
    (r.Acl(31, "nothing", "like this"),),
    (r.Acl(31, "world", "nobody"),),
    (),
]
AT_ONCE = [1] * 8 + [2, 5]
FLAGS = [0, 0, 0, 0, 1, 1, 1, 2, 3, 3, 4, 5, 7, -1]
VERSIONS = [-1, -1, -1, -1, 0, 0, 1, 2, -2, 2**31 - 1]
DATA = [b"", b"x", b"some more", None]
TTLS = [10**9, 10**9, 10**9, 0, -1, 2**39, 2**40]
KINDS = [1, 2, 3, 1, 2, 3, 0, 4]
SCHEMES = ["digest"] * 6 + ["ip", "world", "sasl", "nothing"]
UNKNOWN = [0, 10, 17, 18, 99, 110, -2, 1000]
NOT_MALFORMED = (OpCode.CLOSE_SESSION, OpCode.ERROR, OpCode.PING, OpCode.WHO_AM_I)


HIDING = ACLS[1], ACLS[2], ACLS[5], ACLS[6]
"""Up to 3.8, exists reveals the existence of a node to clients that may not read it."""

COUNTED = (OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL, OpCode.DELETE, OpCode.SET_DATA)
COUNTED += (OpCode.SET_ACL, OpCode.DELETE_CONTAINER, OpCode.CHECK, OpCode.RECONFIG)
"""A malformed one uses up a zxid, up to 3.8."""


class Author:
    """Writes one script; the same ``seed`` is the same script. ``reaps``: for servers that reap at short intervals;
    ``newer``: for ZooKeeper 3.9 or later."""

    def __init__(self, seed: int, reaps: bool = False, newer: bool = False) -> None:
        self._dice = random.Random(seed)
        self._reaps, self._newer = reaps, newer
        self._acls = [acl for acl in ACLS if not (newer and acl in HIDING)]
        self._enforced = self._crowded = False
        self._requests: dict[Callable[[], Any], int] = {
            self._plain: 18,
            self._create: 10,
            self._delete: 9,
            self._set_data: 9,
            self._multi: 9,
            self._read: 26,
            self._watching: 14,
            self._set_acl: 5,
            self._auth: 4,
            self._odd_request: 3,
        }

        self._alone = (self._auth, self._odd_request, self._set_acl, self._multi)
        """Not together with others, since ZooKeeper then leaves things to chance: the first two may end the connection;
        requests after a setACL may be checked against the ACL before it; a multi that is refused while others are on
        their way may use up a sequence number."""

    def script(self, fewest: int = 10, most: int = 50) -> list[Step]:
        beginning = [r.CreateRequest(path) for path in ("/a", "/a/b", "/c") if self._dice.random() < 0.7]
        if self._dice.random() < 0.2:
            self._enforced = self._flip()
            given = (b"", self._dice.choice(HARD_LIMITS) if self._enforced else LIMITS, NO_COUNTS)
            beginning += [r.CreateRequest(path, data) for path, data in zip(QUOTA, given, strict=True)]
        steps = [Ask(0, (request,)) for request in beginning]
        return [*steps, *(self._step() for _ in range(self._dice.randint(fewest, most)))]

    def _step(self) -> Step:
        who, chance = self._dice.randrange(CLIENTS), self._dice.random()
        if chance < 0.0005:
            return Expire(who)
        if chance < 0.04:
            return Close(who)
        if chance < 0.08:
            right = self._dice.random() < 0.8
            zxid = self._dice.choice([None, None, 0, 10**6])
            return Reconnect(who, self._flip() or not right, right, zxid if right else None)
        if self._reaps and chance > 0.92:
            return Reap(who, self._dice.choice(GOOD), self._flip())
        at_once = 1 if self._enforced else self._dice.choice(AT_ONCE)
        first, *others = self._dice.choices([*self._requests], [*self._requests.values()], k=at_once)
        if others and first in self._alone:
            first = self._plain
        self._crowded = bool(others)
        makers = [first, *(make for make in others if make not in self._alone)]
        return Ask(who, tuple(make() for make in makers))

    def _flip(self) -> bool:
        return self._dice.random() < 0.5

    def _path(self) -> str:
        return self._dice.choice(GOOD if self._dice.random() < 0.9 else ODD)

    def _path_to_read(self) -> str:
        return self._path() if self._dice.random() < 0.9 else self._dice.choice(QUOTA)

    def _some_paths(self) -> tuple[str, ...]:
        return tuple(self._dice.choices(GOOD, k=self._dice.randrange(4)))

    def _acl(self) -> tuple[r.Acl, ...]:
        return OPEN if self._dice.random() < 0.8 else self._dice.choice(self._acls)

    def _data(self) -> bytes | None:
        return self._dice.choice(DATA)

    def _version(self) -> int:
        return self._dice.choice(VERSIONS)

    def _plain(self) -> Any:
        kind = self._dice.choice([r.CreateRequest, r.Create2Request])
        return kind(self._dice.choice(GOOD), self._data(), OPEN, self._dice.choice([0, 0, 1, 2, 3]))

    def _create(self) -> Any:
        kinds = [r.CreateRequest, r.Create2Request, r.CreateContainerRequest, r.CreateTtlRequest]
        kind = self._dice.choice(kinds[:2] if self._reaps else kinds)
        given = self._path(), self._data(), self._acl()
        if kind is r.CreateTtlRequest:
            return kind(*given, self._dice.choice([5, 6]), self._dice.choice(TTLS))
        usual = kind is r.CreateContainerRequest and (self._flip() or self._crowded)
        flags = 4 if usual else self._dice.choice(FLAGS)
        return kind(*given, 0 if self._reaps and flags >= 4 else flags)

    def _delete(self) -> Any:
        return r.DeleteRequest(self._path(), self._version())

    def _set_data(self) -> Any:
        return r.SetDataRequest(self._path(), self._data(), self._version())

    def _set_acl(self) -> Any:
        acl = self._dice.choice([OPEN, OPEN, *self._acls])
        return r.SetAclRequest(self._path(), acl, self._version())

    def _check(self) -> Any:
        return r.CheckVersionRequest(self._path(), self._version())

    def _multi(self) -> Any:
        writes = [self._plain, self._plain, self._create, self._delete, self._set_data]
        makers = [self._dice.choice([*writes, self._check]) for _ in range(self._dice.randrange(5))]
        if self._enforced:
            makers[1:] = [self._check] * len(makers[1:])
        return r.MultiRequest(tuple(map(self._known, (make() for make in makers))))

    def _known(self, operation: Any) -> Any:
        """Up to 3.8 a create2 in a multi is answered as a create, one of a container by its flags; one with flags that
        do not exist is refused as it is elsewhere, not the whole multi."""
        if self._newer and isinstance(operation, r.CreateContainerRequest):
            return operation._replace(flags=4)
        if self._newer and isinstance(operation, (r.CreateRequest, r.Create2Request)):
            return r.CreateRequest(*operation)._replace(flags=operation.flags if operation.flags in range(5) else 0)
        return operation

    def _get(self) -> Any:
        kind = self._dice.choice([r.GetDataRequest, r.GetChildrenRequest])
        return kind(self._path_to_read(), self._flip())

    def _read(self) -> Any:
        if self._dice.random() < 0.1:
            return r.MultiReadRequest(tuple(self._get() for _ in range(self._dice.randrange(4))))
        if self._dice.random() < 0.25:
            kinds = [r.GetAclRequest, r.GetEphemeralsRequest, r.GetAllChildrenNumberRequest, r.SyncRequest]
            return self._dice.choice(kinds)(self._path())
        kind = self._dice.choice([r.ExistsRequest, r.GetDataRequest, r.GetChildrenRequest, r.GetChildren2Request])
        return kind(self._path_to_read(), self._flip())

    def _watching(self) -> Any:
        kind = self._dice.choice([r.CheckWatchesRequest, r.RemoveWatchesRequest])
        chance = 0.7 if self._newer else self._dice.random()  # lasting watches are others since 3.9
        if chance < 0.3:
            return r.AddWatchRequest(self._path(), self._dice.choice([0, 1, 0, 1, 0, 1, 2]))
        if chance < 0.6:
            return kind(self._path(), self._dice.choice(KINDS))
        seen = self._dice.randrange(25)
        if chance < 0.8:
            return r.SetWatchesRequest(seen, *(self._some_paths() for _ in range(3)))
        return r.SetWatches2Request(seen, *(self._some_paths() for _ in range(5)))

    def _auth(self) -> Any:
        return r.AuthRequest(0, self._dice.choice(SCHEMES), self._dice.choice([ANN, ANN, BOB, SUPER, b"", b"no colon"]))

    def _odd_request(self) -> Any:
        left_out = NOT_MALFORMED + COUNTED if self._newer else NOT_MALFORMED
        malformed = self._dice.choice([op for op in OpCode if op not in left_out])
        deletes = [] if self._newer else [r.DeleteContainerRequest()]
        others = [r.WhoAmIRequest(), r.PingRequest(), *deletes, r.ReconfigRequest()]
        strange = [r.MalformedRequest(int(malformed)), r.UnknownRequest(self._dice.choice(UNKNOWN))]
        return self._dice.choice([*others, *strange])
