"""Partitioner: shares of work, divided among the live members of a group."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from distsync._client import json_data
from distsync._client.clocks import wait_clock
from distsync._client.contender_info import describe
from distsync._client.deadlines import earliest
from distsync._client.naming.paths import decode_name, encode_name
from distsync._objects.base import FencingToken, SharedObject, ask_timeout_of
from distsync._objects.observable import call_logged
from distsync._objects.validation import validate_callback, validate_timeout
from distsync._protocols.locks.lock import Grant
from distsync._protocols.state.partitioner import Callbacks, PartitionerCore
from distsync._signal_handlers import interruptible_at_entry, is_interrupt
from distsync.errors import MismatchError, NotHeldError

if TYPE_CHECKING:
    from distsync._client.client import Client

logger = logging.getLogger("distsync.client")

Result = TypeVar("Result")

OnShare = Callable[[str], Any]

#: Maximum number of shares whose names a member's znode contains; of more, it contains number and digest.
NAMED = 20


class Partitioner(SharedObject):
    """A division of shares of work among live members, each share held by one member at a time.

    All members hold the same number of shares, give or take one. If members join or leave, only
    those shares move that must.

    A member works on the shares that it holds: it iterates over the partitioner, or uses the
    callbacks. Another member may get a share only after ``on_release`` has returned for it; without
    ``on_release``, at once.

    Args:
        shares: Names of the shares, the same for all members; at least one.
        name: Name of the partitioner, shared by all processes that use it. Without a name, a
            partitioner assigned at module or class level is named after its variable; any other
            partitioner gets a unique name.
        client: The client to use; None uses the default client.
        path: Path of the partitioner's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_acquire: Called with the name of a share after this member has acquired it, in a thread
            of distsync's own, one call after the other; None calls nothing.
        on_release: Called with the name of a share before this member gives it up, and after it has
            lost it, in the same thread; None calls nothing.

    Raises:
        TypeError: Both a name and a path are given, or ``shares`` is not an iterable of str.
        ValueError: There is no share, two shares have the same name, or a name cannot be part of a
            path.
        ConfigurationError: ``acl`` is not valid.

    Note:
        Joining costs 2 requests, 1 for each present member, and 1 in the background. Acquiring
        shares costs 4, and 1 for each of them. Giving up a share costs 1. Holding and reading held
        shares costs none. Apart from the shares that move, a member that joins or leaves costs each
        other member 1 request, and 1 for each new member.

        Which members hold one share more, if the number of shares is not a multiple of the number
        of members, is random.

        If the session ends, all shares are lost at once, ``on_release`` is called for each, and the
        member joins again. So it does if another client deletes its znode. If a request is refused,
        because of a quota for instance, the member gives up its shares, so that others take them, and
        joins again once the server accepts a claim. Each is logged as a warning of ``distsync.client``.

        Znodes: ``<namespace>/partitioner/<name>/members``, like those of a Group;
        ``.../claims/<share>;<member>-<sequence>``, ephemeral, one for each share.

        Source: ZooKeeper recipes, "Group Membership" and "Locks"; kazoo's SetPartitioner, without
        its pause for all members.

    Example:
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
        self.on_acquire = validate_callback("on_acquire", on_acquire)
        self.on_release = validate_callback("on_release", on_release)
        #: The thread in which a callback of this object runs.
        self._calling: int | None = None

    def _arguments(self) -> tuple[Any, ...]:
        return (tuple(sorted(self._shares)),)

    @property
    def _core(self) -> PartitionerCore:
        core = self._shared_state(partial(PartitionerCore, shares=frozenset(map(encode_name, self._shares))))
        if core.shares != frozenset(map(encode_name, self._shares)):
            raise MismatchError("the shares", self.path, _said(map(decode_name, core.shares)), _said(self._shares))
        return core

    # ---- membership

    def join(self, *, timeout: float | None = None) -> None:
        """Join the members, until `leave`, the exit of this process or the close of its client.

        The shares are acquired in the background.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Raises:
            MismatchError: The present members have other shares.
            RuntimeError: This process is a member already, or a callback of this partitioner calls this.
            DeadlineError: No server answered in time, and this process is not a member, or leaves
                in the background. Or an earlier `leave` that was late has not ended in time. Subclass
                of TimeoutError.

        Note:
            Costs 2 requests and 1 for each present member. In the background it costs 1, then 4,
            and 1 for each share.

            If interrupted, this process is not a member.
        """
        member_data = json_data.encode(
            {**json_data.fields(describe()), "data": _said(self._shares)}, "the names of the shares"
        )
        if self._calling == threading.get_ident():  # a membership ends after its callbacks only
            raise RuntimeError(f"a callback of {self.path} cannot join it")
        callbacks = Callbacks(
            partial(self._call, "on_acquire"), partial(self._call, "on_release"), self._log_interrupted
        )
        names: list[str] = []
        try:
            before = self._ask(self._core.join(member_data, callbacks, names), timeout)
            if before is None:
                raise RuntimeError(f"this process takes part in {self.path} already")
            for node in before.values():
                theirs = json_data.fields(node.data).get("data")
                if theirs != _said(self._shares):
                    self._leave(self.client.settings.session_timeout)
                    raise MismatchError("the shares", self.path, theirs, _said(self._shares))
        except BaseException as error:  # perhaps interrupted after it had joined
            if is_interrupt(error):
                for name in names:
                    self.client.background(self._core.leave(name))
            raise

    def leave(self, *, timeout: float | None = None) -> None:
        """Give up the shares, each after ``on_release`` has returned for it, and leave the members.

        Args:
            timeout: Maximum wait for ``on_release`` and for the server, in seconds. None uses the client's
                default; the wait is never longer than the session timeout.

        Raises:
            NotHeldError: This process is not a member. Subclass of RuntimeError.
            DeadlineError: ``on_release`` did not return, or no server could be reached, in time. The
                other shares are given up in the background. Subclass of TimeoutError.

        Note:
            Costs 3 requests, and 1 for each share.
        """
        longest = self.client.settings.session_timeout
        self._leave(earliest(ask_timeout_of(self.client, timeout), longest))

    def _leave(self, seconds: float | None) -> None:
        if not self._run(self._core.leave(), seconds):
            raise NotHeldError(f"{self.path}: this process takes no part")

    def __enter__(self) -> Partitioner:
        self.join()
        return self

    @interruptible_at_entry
    def __exit__(self, *details: object) -> None:
        try:
            if self._core.member is not None:
                self._leave(self.client.settings.session_timeout)
        except BaseException as error:  # perhaps interrupted before it began
            if is_interrupt(error):
                self.client.background(self._core.leave())
            raise

    def _call(self, which: str, part: str, token: int) -> None:
        callback: OnShare | None = getattr(self, which)
        if callback is not None:
            self._calling = threading.get_ident()
            try:
                call_logged(callback, decode_name(part))
            finally:
                self._calling = None

    def _log_interrupted(self, reason: str) -> None:
        logger.warning("%s: this process takes part no more, and joins again as soon as it can: %s", self.path, reason)

    # ---- held shares

    def _grant(self, share: str) -> Grant | None:
        grant = self._core.held.get(encode_name(share))
        held = grant is not None and not grant.loss.fired and self.client.is_proven(grant.entry.session_id)
        return grant if held else None

    @property
    def shares(self) -> frozenset[str]:
        """The names of the shares that this process provably holds.

        Note:
            Costs no request. The lease clock decides, even if no server can be reached.
        """
        return frozenset(share for share in map(decode_name, list(self._core.held)) if self._grant(share))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.shares))

    def __len__(self) -> int:
        return len(self.shares)

    def __bool__(self) -> bool:
        """Return True, also without shares."""
        return True

    def __contains__(self, share: object) -> bool:
        """Return whether this process provably holds ``share``; check before each step of work."""
        return isinstance(share, str) and self._grant(share) is not None

    def fencing_token(self, share: str) -> FencingToken:
        """Return the fencing token of a held share, which increases from holder to holder.

        Args:
            share: Name of the share.

        Returns:
            The token.

        Raises:
            TypeError: ``share`` is not a str.
            NotHeldError: This process does not hold the share. Subclass of RuntimeError.

        Note:
            Costs no request.
        """
        _encoded(share)
        grant = self._grant(share)
        if grant is None:
            raise NotHeldError(f"the share {share!r} of {self.path} is not held by this process")
        return FencingToken(grant.token)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the held shares differ from those at the start of the call.

        Args:
            timeout: Maximum wait in seconds; 0 or less does not wait, None waits forever.

        Returns:
            True if the held shares have changed; False on timeout.

        Note:
            Costs no request.
        """
        held = self.shares
        return bool(self.wait_for(lambda: self.shares != held, timeout))

    def wait_for(self, predicate: Callable[[], Result], timeout: float | None = None) -> Result:
        """Wait until a predicate holds.

        It is checked first, and again after each change of the held shares.

        Args:
            predicate: Called without arguments; its result is tested for truth.
            timeout: Maximum wait in seconds; 0 or less does not wait, None waits forever.

        Returns:
            The last result of ``predicate``.

        Note:
            Costs no request.
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
            self._run(core.wait_for_change(changed), remaining)

    def __repr__(self) -> str:
        return (
            f"<distsync.recipes.Partitioner object name={self.name!r} of {len(self._shares)} shares at {id(self):#x}>"
        )


def _checked(shares: Iterable[str]) -> frozenset[str]:
    """Return the names of the shares, or raise TypeError or ValueError."""
    if isinstance(shares, (str, bytes)) or not any(hasattr(shares, one) for one in ("__iter__", "__getitem__")):
        raise TypeError(f"shares must be several names, not {shares!r}")
    names = list(shares)
    for name in names:
        _encoded(name)
    if len(set(names)) != len(names) or not names:
        raise ValueError("the names of the shares must differ" if names else "there must be a share at least")
    return frozenset(names)


def _encoded(share: str) -> str:
    """Return the name of a share in a path, or raise TypeError or ValueError."""
    if not isinstance(share, str):
        raise TypeError(f"the name of a share must be a str, not {share!r}")
    return encode_name(share)


def _said(shares: Iterable[str]) -> str:
    """Return a short text that differs for other shares."""
    names = sorted(shares)
    if len(names) <= NAMED:
        return ", ".join(names)
    digest = hashlib.sha256("\0".join(names).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{len(names)} shares, {names[0]} to {names[-1]}, sum {digest}"
