"""RateLimiter: tokens that all processes share.

Rules for this file: no znode; each method checks its arguments and runs one protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._objects.base import SharedObject, type_name
from distsync._objects.validation import validate_positive, validate_timeout
from distsync._protocols.state.token_bucket import RateCore
from distsync.errors import MismatchError

if TYPE_CHECKING:
    from distsync._client.client import Client


class RateLimiter(SharedObject):
    """``rate`` tokens ``per`` so many seconds, for all together; up to ``burst`` at once after a while of rest.

    Units: tokens; ``per`` in seconds; ``burst`` in tokens, None: as many as ``rate``.
    Cost: 1 request if nobody else has asked since this process did; else 2 more each time.
    Fair: in the order in which the server heard of them.
    Source: the token bucket; Redisson's ``RRateLimiter``, filled by the server's clock.

    Znodes: ``<namespace>/rate/<name>``, data: how full the bucket is.

    >>> calls = RateLimiter(10, per=60, burst=2, name="calls")
    >>> [calls.try_acquire() for _ in range(3)]
    [True, True, False]
    """

    __module__ = "distsync.recipes"
    _kind = "rate"

    def __init__(
        self,
        rate: float,
        per: float = 1.0,
        burst: float | None = None,
        *,
        name: str | None = None,
        client: Client | None = None,
        path: str | None = None,
        acl: Sequence[Any] | None = None,
    ) -> None:
        self._rate = validate_positive("rate", rate)
        self._per = validate_positive("per", per)
        self._burst = validate_positive("burst", rate if burst is None else burst)
        super().__init__(name, client, path, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._rate, self._per, self._burst)

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self._rate / self._per

    @property
    def burst(self) -> float:
        """How many tokens there are at most."""
        return self._burst

    @property
    def _core(self) -> RateCore:
        core = self._shared_state(partial(RateCore, rate=self.rate, burst=self._burst))
        if (core.rate, core.burst) != (self.rate, self._burst):
            theirs, ours = f"{core.rate}/s, burst {core.burst}", f"{self.rate}/s, burst {self._burst}"
            raise MismatchError("the rate", self.path, theirs, ours)
        return core

    def acquire(self, n: float = 1, timeout: float | None = None) -> bool:
        """``n`` tokens are used up, by now.

        Units: seconds; None: without end.
        Returns: True; False, at once, if they will not be there in time, and then none are used.
        Raises: ValueError if ``n`` is more than the burst; MismatchError where others ask for another rate.
        On loss: of the session: nothing. Tokens whose answer was lost may be lost: the rate is never exceeded.
        On cancel: the tokens come back, unless others have asked after them.
        Cost: 1 request if nobody else has asked since this process did; else 2 more each time.
        Fair: in the order in which the server heard of them.
        """
        tokens = validate_positive("n", n)
        if tokens > self._burst:
            raise ValueError(f"n is {n}, the burst is {self._burst}: so many tokens are never there at once")
        seconds = validate_timeout(timeout)
        return bool(self._run(self._core.acquire(tokens, seconds), seconds))

    def try_acquire(self, n: float = 1) -> bool:
        """``n`` tokens are used up, if they are there.

        Returns: True; False if they are not.
        Raises: as acquire.
        Cost: as acquire.
        """
        return self.acquire(n, 0.0)

    def __repr__(self) -> str:
        text = f"{self._rate:g} per {self._per:g} s, burst {self._burst:g}"
        return f"<{type_name(self)} at {id(self):#x}: {text}>"
