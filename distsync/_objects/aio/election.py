"""Election of ``distsync.asyncio``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from distsync._client.contender_info import describe
from distsync._client.json_data import encode, with_data
from distsync._objects import election
from distsync._objects.aio.base import mine
from distsync._objects.aio.conditions import Condition
from distsync._objects.aio.locks import Lock
from distsync._objects.election import Candidate, has_leader
from distsync._objects.validation import validate_callback, validate_timeout
from distsync._protocols import wait_queue

if TYPE_CHECKING:
    from distsync._client.client import Client

OnChange = Callable[[Candidate | None, Candidate | None], Any]


class Election(Condition, Lock):
    """A leader election: one candidate leads at a time, until it resigns or its process exits.

    It is like a Condition whose lock is leadership. `wait` and `wait_for` are the leader's: it steps
    down, waits for a `notify` by a later leader, and leads again when they return. A
    ``distsync.recipes.Election`` of the same name is the same election.

    Any task may observe the election without being a candidate: `leader`, `wait_for_leader` and
    `on_change`.

    If the leadership is lost, ``is_leader`` becomes False, and the end of the ``async with`` block
    raises LockLostError. Stop the work that only a leader may do.

    Args:
        data: Any JSON value that other processes can read of this candidate, such as an address.
        name: Name of the election, shared by all processes that use it. Without a name, an election
            assigned at module or class level is named after its variable; any other election gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the election's znode, instead of a name.
        layout: Naming scheme of the znodes: ``"curator"``, ``"latch"`` or ``"kazoo"``, as in
            ``distsync.recipes.Election``.

    Raises:
        TypeError: Both a name and a path are given.
        ConfigurationError: ``layout`` is not valid.
        PayloadPickleError: ``data`` is not JSON.
        PayloadTooLargeError: ``data`` is too large.

    Note:
        Costs and fairness are those of ``distsync.recipes.Election``, with tasks in place of threads.
        As with ``asyncio.Condition``, a task that leads may not acquire it again.

        Znodes: those of ``distsync.recipes.Election``.

        Source: ZooKeeper recipes, "Leader Election"; the mail of June 2008 (LEADER);
        ``asyncio.Condition``.

    Example:
        >>> from distsync.asyncio import Election
        >>> async def main():
        ...     election = Election("10.0.0.7:8080", name="scheduler")
        ...     async with election:
        ...         print((await election.find_leader()).data)
        >>> asyncio.run(main())
        10.0.0.7:8080
    """

    __module__ = "distsync.asyncio"
    _kind: ClassVar[Any] = election.Election

    def __init__(
        self,
        data: Any = None,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        layout: str = "curator",
    ) -> None:
        self._init_sync(data, name=name, client=client, path=path, layout=layout)

    @property
    def _lock(self) -> Lock:
        return self

    async def acquire(self) -> Literal[True]:
        """Become a candidate, and wait until this task leads.

        Returns:
            True.

        Raises:
            UnreachableError: No server could be reached for the client's first connection.

        Note:
            Costs 3 requests in 2 round trips if there is no other candidate. The next candidate leads
            as soon as it learns of the end of a term; the 1 request that publishes LEADER follows.

            Processes lead in FIFO order.

            If the session ends during the wait, the candidate enqueues again, as the last one. If
            cancelled, no znode is left behind.

            Source: ZooKeeper recipes, "Leader Election", steps 1 to 3; the mail of June 2008
            (LEADER).
        """
        await self._ready()
        data = with_data(describe(), self._sync._data, "the data of a candidate")
        await self._await(self._core.acquire(mine(), data))
        return True

    release = Lock.release
    locked = Lock.locked
    __aenter__ = Lock.__aenter__
    __aexit__ = Lock.__aexit__

    @property
    def is_leader(self) -> bool:
        """Whether this process provably leads.

        Note:
            Costs no request. The lease clock decides, even if no server can be reached.
        """
        return self.held

    @property
    def leader(self) -> Candidate | None:
        """The present leader; None if there is none. It may change at any time.

        Raises:
            DeadlineError: No server answered within the client's default timeout, or within the session
                timeout. Subclass of TimeoutError.

        Note:
            Costs no request if nothing has changed since the last read. After a change it costs 1
            request, and 2 if there is no leader, for which the event loop waits; `find_leader` does
            not make it wait.
        """
        leading = self._sync._core.leader
        return self._sync._shown_leader(self._run_blocking(leading.get(alone=True)))  # type: ignore[no-any-return]

    async def find_leader(self, *, sync: bool = False, timeout: float | None = None) -> Candidate | None:
        """Return the present leader, which may change at any time.

        Args:
            sync: Whether to read what a quorum of the ensemble knows: a server may lag behind.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The leader; None if there is none.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.
            UnreachableError: No server could be reached for the client's first connection.

        Note:
            Costs no request if nothing has changed since the last read, 1 request after a change, and
            2 if there is no leader. With ``sync``, it costs 2, and 3 if there is no leader.
        """
        await self._ready()
        return self._sync._shown_leader(  # type: ignore[no-any-return]
            await self._ask(self._sync._core.leader.get(sync), timeout)
        )

    async def wait_for_leader(self, timeout: float | None = None) -> Candidate | None:
        """Wait until there is a leader. The caller need not be a candidate.

        Args:
            timeout: Maximum wait in seconds; 0 looks once, None waits forever.

        Returns:
            The leader, which may change at any time; None on timeout.

        Raises:
            UnreachableError: No server could be reached for the client's first connection.

        Note:
            Costs as many requests as `find_leader`, and as many again after each change.

            If the session ends, the wait continues in the next one. If cancelled, nothing is left
            behind.

            Source: ZooKeeper recipes, "Leader Election", LEADER.
        """
        seconds = validate_timeout(timeout)
        await self._ready()
        found = await self._await(self._sync._core.leader.until(has_leader), seconds)
        return self._sync._shown_leader(found)  # type: ignore[no-any-return]

    @property
    def on_change(self) -> OnChange | None:
        """The callback for changes, called with the leader before and after each; None calls nothing.

        It is called in the event loop that runs when it is set. A new announcement is a change.

        Raises:
            RuntimeError: No event loop is running.

        Note:
            Setting it sends 1 request in the background. Each change costs 1 request.
        """
        sync_callback = self._sync.on_change
        return None if sync_callback is None else sync_callback.args[1]

    @on_change.setter
    def on_change(self, callback: OnChange | None) -> None:
        validate_callback("on_change", callback)
        if callback is None:
            self._sync.on_change = None
        else:
            self._sync.on_change = partial(_call_in_loop, asyncio.get_running_loop(), callback)

    async def announce(self, data: Any, *, timeout: float | None = None) -> None:
        """Tell all processes something as the leader, such as that its procedure has been executed.

        They read it as ``leader.announcement``, until the term ends or the leader announces something
        else.

        Args:
            data: Any JSON value.
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Raises:
            NotHeldError: No task of this process leads. Subclass of RuntimeError.
            LockLostError: The leadership was lost.
            DeadlineError: No server answered in time, and it may or may not be announced. Subclass of
                TimeoutError.
            UnreachableError: No server could be reached for the client's first connection.
            PayloadPickleError: ``data`` is not JSON.
            PayloadTooLargeError: ``data`` is too large.

        Note:
            Costs 1 request. The ensemble refuses it if another process leads by then.

            If the reply is lost, it is repeated. If cancelled, it may be announced.

            Source: ZooKeeper recipes, "Leader Election"; the mail of June 2008: the leader tells in
            LEADER that the leader procedure has been executed.
        """
        encode(data, "an announcement")
        await self._ready()
        await self._ask(self._sync._core.announce(data), timeout)

    async def candidates(self, *, timeout: float | None = None) -> list[Candidate]:
        """Return the leader and the other candidates, in the order in which they will lead.

        Tasks of one process that contend together count as one candidate.

        Args:
            timeout: Maximum wait for the server, in seconds; None uses the client's default, -1 waits
                forever.

        Returns:
            The candidates; the first one leads or is about to lead.

        Raises:
            DeadlineError: No server answered in time. Subclass of TimeoutError.
            UnreachableError: No server could be reached for the client's first connection.

        Note:
            Costs 1 request and 1 more for each candidate, in 2 round trips.
        """
        await self._ready()
        found = await self._ask(wait_queue.contenders(self.path), timeout)
        return [election.candidate_of(node.data, path, node.stat.czxid) for path, node in found]

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function as the leader, once, and resign.

        An error that the function raises is raised here too.

        Args:
            function: The function to call. If it returns an awaitable, that is awaited.
            *args: Positional arguments of the function.
            **kwargs: Keyword arguments of the function.

        Returns:
            The result of the function.

        Raises:
            LockLostError: The leadership was lost during the call.

        Note:
            Costs as many requests as `acquire` and `release`.

            Source: ZooKeeper recipes, "Leader Election": execute leader procedure.
        """
        async with self:
            result = function(*args, **kwargs)
            return await result if isawaitable(result) else result


def _call_in_loop(loop: asyncio.AbstractEventLoop, callback: OnChange, before: Any, now: Any) -> None:
    """Call ``callback`` in its loop, unless that is closed."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback, before, now)
