"""RateLimiter: a token bucket in one znode, filled by the server's clock.

Source: the token bucket; the znode's mtime is the only clock that decides.

Rules for this file: pure; the state of a RateCore is shared by the threads of one process, which ask one after the
other. No host's own clock is compared with another's: how long to wait is a difference of the server's times.

Each setData is a request to the bucket: so many tokens, if they are there by then and then. At which moment it was
made, and so whether it is granted, its own mtime says; what was there at the moment before stands in the data. So one
request reserves, and all who ask are served in the order of their requests. A reservation whose answer was lost is
known by its GUID, as long as nobody else has asked after it; else its tokens are lost: the rate is never exceeded.

Picture: ``<path>``  data = ``{"rate": tokens a second, "burst": n, "level": tokens at "at" (ms), "want": tokens asked
                     for at mtime, "debt": how many may be missing then (null: any number), "by": GUID}``
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from distsync._protocols.queues.blocking_get import LocalTurnQueue
from distsync._protocols.retries import INTERRUPTED, ensure, read
from distsync._protocols.state.versioned_value import setting
from distsync._protocols.steps import Background, GetData, Guid, Multi, Node, Stat, Wait, WakeReason
from distsync.errors import (
    BadVersionError,
    CorruptNodeError,
    DeadlineError,
    MismatchError,
    NoNodeError,
    ZnodeError,
)

#: Floats that should be equal may differ by so much: less than a token in years.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Bucket:
    """The bucket as of one version of its znode: the request that was made at ``mtime``, and what was before."""

    rate: float
    burst: float
    level: float
    at: int = 0
    want: float = 0.0
    debt: float | None = 0.0
    by: str = ""
    version: int = 0
    mtime: int = 0

    def data(self) -> bytes:
        fields = {name: value for name, value in asdict(self).items() if name not in ("version", "mtime")}
        return json.dumps(fields).encode()

    @property
    def filled(self) -> float:
        """How many tokens there were at the request's moment. A clock that went back fills nothing."""
        return min(self.burst, self.level + max(0, self.mtime - self.at) / 1000 * self.rate)

    @property
    def granted(self) -> bool:
        """Whether the request was granted."""
        return self.debt is None or self.filled - self.want >= -self.debt - ROUNDING

    @property
    def rest(self) -> float:
        """How many tokens there are after the request; below zero: how many are owed."""
        return min(self.burst, self.filled - self.want) if self.granted else self.filled

    @property
    def wait_s(self) -> float:
        """How many seconds after ``mtime`` what was granted may be used."""
        return max(0.0, -self.rest / self.rate)

    def asked(self, want: float, debt: float | None, by: str) -> Bucket:
        """The next request."""
        return replace(self, level=self.rest, at=self.mtime, want=want, debt=debt, by=by)

    def made(self, stat: Stat) -> Bucket:
        """This request was made."""
        return replace(self, version=stat.version, mtime=stat.mtime)


def bucket_in(path: str, node: Node) -> Bucket:
    """The bucket that this znode describes."""
    try:
        fields = json.loads(node.data)
        debt = None if fields["debt"] is None else float(fields["debt"])
        rate, burst, level = (float(fields[name]) for name in ("rate", "burst", "level"))
        bucket = Bucket(rate, burst, level, int(fields["at"]), float(fields["want"]), debt, str(fields["by"]))
        return bucket.made(node.stat)
    except (ValueError, KeyError, TypeError):
        raise CorruptNodeError(path, node.data) from None


class RateCore:
    """What the threads of one process know together about one limiter."""

    def __init__(self, path: str, rate: float, burst: float) -> None:
        self.path = path
        self.rate = rate
        self.burst = burst
        self.turns = LocalTurnQueue()
        self.known: Bucket | None = None

    @property
    def idle(self) -> bool:
        """Nobody asks."""
        return not self.turns.taken

    async def acquire(self, tokens: float, longest_s: float | None) -> bool:
        """So many tokens are ours, and may be used now. False: they will not be there in ``longest_s`` seconds (None:
        however long it takes), or not before the deadline; then none are taken."""
        try:
            reserved = await self._reserve(tokens, longest_s)
        except DeadlineError:
            return False
        if reserved is None or reserved.wait_s == 0:
            return reserved is not None
        try:
            woke = await Wait(limit=reserved.wait_s)
        except BaseException:
            await Background(self._give_back(reserved))
            raise
        if woke is WakeReason.DEADLINE:
            await Background(self._give_back(reserved))
        return woke is WakeReason.LIMIT

    async def _reserve(self, tokens: float, longest_s: float | None) -> Bucket | None:
        debt = None if longest_s is None else longest_s * self.rate
        if longest_s == 0:  # it must not wait, and the version decides in any case
            made = await self._ask(tokens, debt)
        elif not await self.turns.wait():
            return None
        else:
            try:
                made = await self._ask(tokens, debt)
            finally:
                self.turns.pass_on()
        return made if made.granted else None

    async def _ask(self, tokens: float, debt: float | None) -> Bucket:
        """The request was made."""
        while True:
            known = self.known or await self.look()
            self.known = None
            asked = known.asked(tokens, debt, await Guid())
            try:
                made = asked.made((await Multi(setting(self.path, asked.data(), known.version)))[-1])
            except (BadVersionError, NoNodeError):
                continue
            except INTERRUPTED:
                made = await self.look()
                if made.by != asked.by:
                    continue  # it was not executed, or is not the last one any more
            except BaseException:
                await Background(self._take_back(asked))
                raise
            self.known = made
            return made

    async def _take_back(self, asked: Bucket) -> None:
        """The request of a call that ended before it had an answer. Ours are executed in their order: what is seen now
        will not change any more."""
        made = await self.look()
        if made.by == asked.by and made.granted:
            await self._give_back(made)

    async def look(self) -> Bucket:
        """The last request, and what was before it."""
        while True:
            try:
                bucket = bucket_in(self.path, await read(GetData(self.path)))
            except NoNodeError:
                await ensure(self.path, Bucket(self.rate, self.burst, self.burst).data())
                continue
            if (bucket.rate, bucket.burst) != (self.rate, self.burst):
                theirs, ours = f"{bucket.rate}/s, burst {bucket.burst}", f"{self.rate}/s, burst {self.burst}"
                raise MismatchError("the rate", self.path, theirs, ours)
            return bucket

    async def _give_back(self, reserved: Bucket) -> None:
        """The tokens were not used. Where others have asked since, their moments stand, and these tokens are lost."""
        back = reserved.asked(-reserved.want, None, await Guid())
        try:
            await Multi(setting(self.path, back.data(), reserved.version))
        except ZnodeError:
            return
