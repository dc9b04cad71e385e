"""Partitioner.

Rules for this file: no znode; each method checks its arguments and runs one protocol.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from distsync._client import json_data
from distsync._client.clocks import wait_clock
from distsync._client.contender_info import describe
from distsync._client.naming.paths import decode_name, encode_name
from distsync._objects.base import FencingToken, SharedObject
from distsync._objects.observable import call_logged
from distsync._objects.validation import validate_timeout
from distsync._protocols.locks.lock import Grant
from distsync._protocols.state.partitioner import Callbacks, PartitionerCore
from distsync.errors import MismatchError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client

Result = TypeVar("Result")

OnShare = Callable[[str], Any]

#: So many shares are named in a member's znode; of more it says how many there are, and their sum.
NAMED = 20


class Partitioner(SharedObject):
    """Each share of the work is one live member's at a time, and all members have as many, give or take one.

    ``shares`` are names, the same for all members. A member works on what it holds: it iterates over the partitioner,
    or is told: ``on_acquire(share)`` is called when it gets one, ``on_release(share)`` before it gives one up, and only
    when that has returned somebody else may get it; one after the other in a thread of distsync's own. Who has no
    ``on_release`` gives up at once. When members come or go, only those shares move that must.
    On loss: of the session: all shares are lost at once, ``on_release`` is called for each, and the member joins again.
    Cost: to join 2 requests, 1 for each member that is there then, and 1 in the background; to take shares 4, and 1 for
        each; to give one up 1; holding and looking at what is held cost nothing. Beside the shares that move a member
        that comes or goes costs each other one 1 request, and 1 for each new member.
    Fair: all have as many; where they do not come out even, chance gives some one more.
    Source: recipes.txt, Group Membership and Locks; kazoo's SetPartitioner, without its pause for all.

    Znodes: ``<namespace>/partitioner/<name>/members``, as a Group; ``.../claims/<share>;<member>-<sequence>``,
    ephemeral, one a share.

    >>> work = Partitioner(["a", "b", "c"], name="work")
    >>> with work:
    ...     sorted(work.wait_for(lambda: len(work) == 3) and work)
    ['a', 'b', 'c']
    """

    __module__ = "distsync.recipes"
    _kind = "partitioner"

    def __init__(
        self,
        shares: Iterable[str],
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
        on_acquire: OnShare | None = None,
        on_release: OnShare | None = None,
    ) -> None:
        super().__init__(name, client, path, acl)
        self._shares = _checked(shares)
        self.on_acquire = on_acquire
        self.on_release = on_release

    def _arguments(self) -> tuple[Any, ...]:
        return (tuple(sorted(self._shares)),)

    @property
    def _core(self) -> PartitionerCore:
        core = self._shared_state(partial(PartitionerCore, shares=frozenset(map(encode_name, self._shares))))
        if core.shares != frozenset(map(encode_name, self._shares)):
            raise MismatchError("the shares", self.path, _said(map(decode_name, core.shares)), _said(self._shares))
        return core

    # ---- taking part

    def join(self) -> None:
        """This process takes part, and gets its shares soon; until it leaves, dies or closes its client.

        Raises: MismatchError if those who take part have other shares; RuntimeError if this process takes part already.
        On cancel: it does not take part.
        Cost: 2 requests, and 1 for each member; in the background 1, and 4 and 1 for each share.
        """
        member_data = json_data.encode(
            {**json_data.fields(describe()), "data": _said(self._shares)}, "the names of the shares"
        )
        callbacks = Callbacks(partial(self._call, "on_acquire"), partial(self._call, "on_release"))
        names: list[str] = []
        try:
            before = self._run(self._core.join(member_data, callbacks, names))
            if before is None:
                raise RuntimeError(f"this process takes part in {self.path} already")
            for node in before.values():
                theirs = json_data.fields(node.data).get("data")
                if theirs != _said(self._shares):
                    self.leave()
                    raise MismatchError("the shares", self.path, theirs, _said(self._shares))
        except Exception:
            raise
        except BaseException:  # perhaps interrupted when it had joined
            for name in names:
                self.client.background(self._core.leave(name))
            raise

    def leave(self) -> None:
        """This process takes no part any more; its shares are given up first, each when ``on_release`` has returned.

        Raises: NotHeldError (a RuntimeError) if it took none; DeadlineError when ``on_release`` has not returned, or
            the connection not come back, within a session's time-out: the rest is given up in the background.
        Cost: 1 request for each share, and 3.
        """
        if not self._run(self._core.leave(), self.client.settings.session_timeout):
            raise NotHeldError(f"{self.path}: this process takes no part")

    def __enter__(self) -> Partitioner:
        self.join()
        return self

    def __exit__(self, *details: object) -> None:
        try:
            if self._core.member is not None:
                self.leave()
        except Exception:
            raise
        except BaseException:  # perhaps interrupted before it began
            self.client.background(self._core.leave())
            raise

    def _call(self, which: str, part: str, token: int) -> None:
        callback: OnShare | None = getattr(self, which)
        if callback is not None:
            call_logged(callback, decode_name(part))

    # ---- what is held

    def _grant(self, share: str) -> Grant | None:
        grant = self._core.held.get(encode_name(share))
        held = grant is not None and not grant.loss.fired and self.client.is_proven(grant.place.session_id)
        return grant if held else None

    @property
    def shares(self) -> frozenset[str]:
        """The shares that this process provably holds at this moment.

        Cost: no request; the answer comes from the lease clock.
        """
        return frozenset(share for share in map(decode_name, list(self._core.held)) if self._grant(share))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.shares))

    def __len__(self) -> int:
        return len(self.shares)

    def __bool__(self) -> bool:
        """Also without a share it is a partitioner."""
        return True

    def __contains__(self, share: object) -> bool:
        """Whether this process provably holds it; ask before each step of the work."""
        return isinstance(share, str) and self._grant(share) is not None

    def fencing_token(self, share: str) -> FencingToken:
        """The number of this holding of the share; it grows from holder to holder.

        Raises: NotHeldError when this process does not hold it. Cost: no request.
        """
        grant = self._grant(share)
        if grant is None:
            raise NotHeldError(f"the share {share!r} of {self.path} is not held by this process")
        return FencingToken(grant.token)

    def wait(self, timeout: float | None = None) -> bool:
        """What this process holds is not what it held when the call began.

        Units: seconds; None: without end.
        Returns: True; False if not in time.
        Cost: none.
        """
        held = self.shares
        return bool(self.wait_for(lambda: self.shares != held, timeout))

    def wait_for(self, predicate: Callable[[], Result], timeout: float | None = None) -> Result:
        """``predicate()`` is true, or the time is over; it is asked at first, and whenever we get or lose a share.

        Units: seconds; None: without end.
        Returns: what ``predicate`` returned last.
        Cost: none.
        """
        seconds = validate_timeout(timeout)
        deadline = None if seconds is None else wait_clock() + seconds
        core = self._core
        while True:
            changed = core.changed
            result = predicate()
            remaining = None if deadline is None else deadline - wait_clock()
            if result or (remaining is not None and remaining <= 0):
                return result
            self._run(core.next(changed), remaining)

    def __repr__(self) -> str:
        return (
            f"<distsync.recipes.Partitioner object name={self.name!r} of {len(self._shares)} shares at {id(self):#x}>"
        )


def _checked(shares: Iterable[str]) -> frozenset[str]:
    if isinstance(shares, (str, bytes)):
        raise TypeError(f"the shares must be several names, not {type(shares).__name__}")
    names = list(shares)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"the name of a share must be a str, not {type(name).__name__}")
        encode_name(name)
    if len(set(names)) != len(names) or not names:
        raise ValueError("the names of the shares must differ" if names else "there must be a share at least")
    return frozenset(names)


def _said(shares: Iterable[str]) -> str:
    """The shares, in a text that is short, and differs for others."""
    names = sorted(shares)
    if len(names) <= NAMED:
        return ", ".join(names)
    digest = hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{len(names)} shares, {names[0]} to {names[-1]}, sum {digest}"
