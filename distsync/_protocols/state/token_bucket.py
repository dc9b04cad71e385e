"""RateLimiter: a token bucket in one znode, filled according to server time.

Source: the token bucket; the znode's mtime is the only clock that decides. No host's clock is
compared with another's: how long to wait is a difference of server times. The threads of one
process ask one at a time.

Each setData is a request for tokens. Its own mtime determines when it was made, and so whether it
is granted; the data contains the level before. So one request makes a reservation, and reservations
are served in the order of their requests. A reservation whose reply was lost is recognized by its
GUID if no other request has followed; otherwise its tokens are lost. In t seconds, at most burst +
rate * t tokens are granted.

Znodes:
  ``<path>``  data: ``{"rate": tokens per second, "burst": n, "level": tokens at time "at" (ms), "want": tokens
              requested at mtime, "debt": how many may be missing then (null for any number), "by": GUID}``
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from distsync._protocols.queues.blocking_get import LocalTurnQueue
from distsync._protocols.receipts import Operation, Receipts
from distsync._protocols.retries import DECODE_ERRORS, INTERRUPTED, ensure, read
from distsync._protocols.state.versioned_value import Remembered, setting
from distsync._protocols.steps import (
    Background,
    Create,
    GetData,
    Guid,
    Multi,
    Node,
    Signal,
    Stat,
    Wait,
    WakeReason,
)
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import (
    BadVersionError,
    CorruptNodeError,
    DeadlineError,
    MismatchError,
    NoNodeError,
    ZnodeError,
)

if TYPE_CHECKING:
    from distsync._protocols.state.parameter_users import ParameterUser

#: Tolerance when comparing tokens: less than one token in years.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Bucket:
    """The bucket at one version of its znode: the request made at ``mtime``, and the level before it."""

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
        """Number of tokens at the time of the request. A clock that was set back adds none."""
        return min(self.burst, self.level + max(0, self.mtime - self.at) / 1000 * self.rate)

    @property
    def granted(self) -> bool:
        """Whether the request was granted."""
        return self.debt is None or self.filled - self.want >= -self.debt - ROUNDING

    @property
    def rest(self) -> float:
        """Number of tokens after the request; negative if tokens are owed."""
        return min(self.burst, self.filled - self.want) if self.granted else self.filled

    @property
    def wait_s(self) -> float:
        """Seconds after ``mtime`` until the granted tokens may be used."""
        return max(0.0, -self.rest / self.rate)

    def asked(self, want: float, debt: float | None, by: str) -> Bucket:
        """Return the bucket with the next request."""
        return replace(self, level=self.rest, at=self.mtime, want=want, debt=debt, by=by)

    def made(self, stat: Stat) -> Bucket:
        """Return the bucket as the server has stored it."""
        return replace(self, version=stat.version, mtime=stat.mtime)


def bucket_in(path: str, node: Node) -> Bucket:
    """Parse the bucket's znode. Raises CorruptNodeError."""
    try:
        fields = json.loads(node.data)
        debt = None if fields["debt"] is None else float(fields["debt"])
        rate, burst, level = (float(fields[name]) for name in ("rate", "burst", "level"))
        bucket = Bucket(rate, burst, level, int(fields["at"]), float(fields["want"]), debt, str(fields["by"]))
        return bucket.made(node.stat)
    except DECODE_ERRORS as error:
        raise_if_from_handler(error)
        raise CorruptNodeError(path, node.data) from None


class RateCore:
    """In-process state of a rate limiter, shared by all its threads."""

    def __init__(self, path: str, rate: float, burst: float, receipts: Receipts) -> None:
        self.path = path
        self.receipts = receipts
        self.rate = rate
        self.burst = burst
        self.wanted = self.parameters
        self.user: ParameterUser | None = None
        self.turns = LocalTurnQueue()
        self.known: Remembered[Bucket] = Remembered()

    @property
    def idle(self) -> bool:
        """Whether no thread is asking."""
        return not self.turns.is_held

    @property
    def parameters(self) -> dict[str, Any]:
        """Rate and burst; see parameter_users.py."""
        return {"rate": self.rate, "burst": self.burst}

    @parameters.setter
    def parameters(self, parameters: dict[str, Any]) -> None:
        self.rate, self.burst = parameters["rate"], parameters["burst"]
        self.known = Remembered()

    def recorded(self, node: Node) -> dict[str, Any]:
        """Return rate and burst in the bucket."""
        bucket = bucket_in(self.path, node)
        return {"rate": bucket.rate, "burst": bucket.burst}

    async def new_record(self, node: Node | None, parameters: dict[str, Any]) -> tuple[Operation, ...]:
        """Return the operations that record another rate. The bucket keeps its tokens, up to the new burst."""
        rate, burst = parameters["rate"], parameters["burst"]
        if node is None:
            return (Create(self.path, Bucket(rate, burst, burst).data()),)
        bucket = bucket_in(self.path, node).asked(0, None, await Guid())
        changed = replace(bucket, rate=rate, burst=burst, level=min(burst, bucket.level))
        return setting(self.path, changed.data(), node.stat.version)

    async def acquire(self, tokens: float, longest_s: float | None) -> bool:
        """Take ``tokens``, waiting until they are available.

        Returns False, and takes none, if they are not available within ``longest_s`` seconds (None
        for no limit), or before the deadline.
        """
        try:
            reserved = await self._reserve(tokens, longest_s)
        except DeadlineError as error:
            raise_if_from_handler(error)
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
        turn = Signal()
        try:
            # with longest_s=0 it must not wait for a turn; the version decides in any case
            if longest_s != 0 and not await self.turns.wait(turn):
                return None
            made = await self._ask(tokens, debt)
        finally:
            self.turns.pass_on(turn)
        return made if made.granted else None

    async def _ask(self, tokens: float, debt: float | None) -> Bucket:
        """Make a request for tokens, and return the bucket after it."""
        while True:
            basis = await self.receipts.basis()
            known = self.known.get(basis) or await self.look()
            self.known.set(None, basis)
            asked = known.asked(tokens, debt, await Guid())
            operations = setting(self.path, asked.data(), known.version)
            try:
                results = await Multi((*operations, *self.receipts.checks(basis)))
                made = asked.made(results[len(operations) - 1])
            except (BadVersionError, NoNodeError) as error:
                if getattr(error, "index", 0) == len(operations):
                    self.receipts.forget_basis(basis)
                continue
            except INTERRUPTED:
                made = await self.look()
                if made.by != asked.by:
                    continue  # not executed, or not the last request any more
            except BaseException:
                await Background(self._take_back(asked))
                raise
            self.known.set(made, basis)
            return made

    async def _take_back(self, asked: Bucket) -> None:
        """Return the tokens of a call that ended before its reply arrived.

        Requests of a session are executed in order: the bucket read now shows whether the request
        was executed.
        """
        basis = await self.receipts.basis()
        made = await self.look()
        if made.by == asked.by and made.granted:
            self.known.set(made, basis)
            await self._give_back(made)

    async def look(self) -> Bucket:
        """Return the current bucket."""
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
        """Return unused tokens. If other requests have followed, their times are fixed, and the tokens
        are lost, as they are if the connection was lost.
        """
        basis = await self.receipts.basis()
        if self.known.get(basis) != reserved:
            return
        back = reserved.asked(-reserved.want, None, await Guid())
        try:
            await Multi((*setting(self.path, back.data(), reserved.version), *self.receipts.checks(basis)))
        except ZnodeError:
            return
