"""RateLimiter: a token bucket shared by processes."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from distsync._objects.base import ParametrizedObject, type_name
from distsync._objects.validation import validate_on_mismatch, validate_positive, validate_timeout
from distsync._protocols.state.token_bucket import RateCore

if TYPE_CHECKING:
    from distsync._client.client import Client


class RateLimiter(ParametrizedObject):
    """A token bucket shared by threads, processes and hosts, filled by the server's clock.

    By the server's clock, at most ``burst + rate * t / per`` tokens are consumed in ``t`` seconds. With
    the default burst of 1, single tokens are at least ``per / rate`` seconds apart, and so no more
    than ``rate`` of them are consumed in ``per`` seconds. A larger burst allows that many at once after
    a pause: with ``burst=rate``, up to twice the rate in ``per`` seconds, the tokens in the bucket and
    those that are added during that time.

    Args:
        rate: Number of tokens that are added every ``per`` seconds.
        per: Seconds in which ``rate`` tokens are added.
        burst: Maximum number of tokens in the bucket, which is full at first, and of one `acquire`;
            None means 1.
        name: Name of the limiter, shared by all processes that use it. Without a name, a limiter
            assigned at module or class level is named after its variable; any other limiter gets a
            unique name.
        client: The client to use; None uses the default client.
        path: Path of the limiter's znode, instead of a name.
        acl: kazoo ACLs for the znodes that this object creates; None uses the client's.
        on_mismatch: What the first use does while other processes use another rate or burst: ``"error"``
            raises MismatchError, ``"wait"`` waits until they have ended or dropped the object, and
            ``"adopt"`` uses theirs. If none does, ours is taken over in each case.

    Raises:
        TypeError: Both a name and a path are given, or ``rate``, ``per`` or ``burst`` is not a
            number.
        ValueError: ``rate``, ``per`` or ``burst`` is not positive.
        ConfigurationError: ``acl`` or ``on_mismatch`` is not valid.

    Note:
        Costs 1 request if no other process has asked for tokens since this process last did, and 2
        more for each retry after another process took tokens first.

        Tokens are granted in the order in which the server receives the requests. The first call of
        a process, or of a session, costs 2 more in 1 round trip if the limiter has a name.

        A changed rate or burst is taken over at the first use if no running process uses the old
        one. The bucket then keeps its tokens, up to the new burst.

        Znodes: ``<namespace>/rate/<name>``, whose data is the level of the bucket;
        ``<namespace>/users/rate/<name>/u_<process>_<guid>``, ephemeral, one for each process that
        uses a limiter with a name.

        Source: the token bucket; Redisson's ``RRateLimiter``.

    Example:
        >>> calls = RateLimiter(10, per=60, burst=2, name="calls")
        >>> [calls.try_acquire() for _ in range(3)]
        [True, True, False]
    """

    __module__ = "distsync.recipes"
    _kind = "rate"
    _has_versions = True

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
        on_mismatch: str = "error",
    ) -> None:
        self._rate = validate_positive("rate", rate)
        self._per = validate_positive("per", per)
        self._burst = validate_positive("burst", 1.0 if burst is None else burst)
        self._on_mismatch = validate_on_mismatch(on_mismatch)
        self._parameters = {"rate": self._rate / self._per, "burst": self._burst}
        super().__init__(name, client, path, acl)

    def _arguments(self) -> tuple[Any, ...]:
        return (self._rate, self._per, self._burst)

    @property
    def rate(self) -> float:
        """Tokens that are added per second; the rate may be adopted from other processes."""
        return float(self._in_force["rate"])

    @property
    def burst(self) -> float:
        """The maximum number of tokens in the bucket; like `rate`, it may be adopted."""
        return float(self._in_force["burst"])

    @property
    def _core(self) -> RateCore:
        core: RateCore = self._agreed_state(partial(RateCore, **self._parameters, receipts=self._receipts))
        return core

    def acquire(self, n: float = 1, timeout: float | None = None) -> bool:
        """Consume tokens, waiting until they are available.

        Args:
            n: Number of tokens, at most ``burst``; it may be a fraction.
            timeout: Maximum wait in seconds; 0 or less does not wait, None waits forever.

        Returns:
            True if the tokens were consumed. False, at once, if they will not be available in time,
            and none were consumed.

        Raises:
            TypeError: ``n`` is not a number.
            ValueError: ``n`` is not positive, or greater than ``burst``.
            MismatchError: Other processes use this name with another rate or burst.

        Note:
            Costs 1 request if no other process has asked for tokens since this process last did,
            and 2 more for each retry after another process took tokens first.

            Tokens are granted in the order in which the server receives the requests.

            If the session ends, the call continues in the next one. Tokens of a request whose reply
            is lost may be lost, but no token is granted twice. If interrupted, the tokens are put
            back, unless another process has asked for tokens after this call.
        """
        tokens = validate_positive("n", n)
        seconds = validate_timeout(timeout)
        core = self._core
        self._check_burst(tokens)
        return (
            bool(self._run(self._using(core, lambda: self._acquiring(core, tokens, seconds)), seconds)) or self._late()
        )

    def _acquiring(self, core: RateCore, tokens: float, seconds: float | None) -> Coroutine[Any, Any, bool]:
        """Return the protocol of an acquire, unless the burst that is in force does not allow it."""
        self._check_burst(tokens)
        return core.acquire(tokens, seconds)

    def _check_burst(self, tokens: float) -> None:
        if tokens > self.burst:
            text = f"n={tokens:g} exceeds the burst of {self.burst:g} and can never be granted: give a larger burst="
            raise ValueError(text)

    def try_acquire(self, n: float = 1) -> bool:
        """Consume tokens if they are available now, like ``acquire(n, 0)``.

        Args:
            n: Number of tokens, at most ``burst``; it may be a fraction.

        Returns:
            True if the tokens were consumed. False if they are not available.

        Raises:
            TypeError: ``n`` is not a number.
            ValueError: ``n`` is not positive, or greater than ``burst``.
            MismatchError: Other processes use this name with another rate or burst.

        Note:
            Costs 1 request if no other process has asked for tokens since this process last did,
            and 2 more for each retry after another process took tokens first.
        """
        return self.acquire(n, 0.0)

    def __repr__(self) -> str:
        text = f"{self._rate:g} per {self._per:g} s, burst {self._burst:g}"
        return f"<{type_name(self)} at {id(self):#x}: {text}>"
