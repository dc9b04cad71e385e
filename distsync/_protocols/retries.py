"""What is done about a lost reply, for the requests that all protocols share, and about what a call could not finish.

Rules for this file: pure; it knows znodes, sessions and errors, and no recipe.

The law for each request whose connection broke (``DisconnectedError``): a read is asked again; a delete of a
name that nobody uses twice is asked again, and NoNodeError is success; an ensured parent is asked again, and
NodeExistsError is success; an ephemeral with a GUID in its name is looked for (wait_queue.py); everything else goes
through a receipt (receipts.py).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from distsync._protocols.steps import Background, Children, Connected, Create, Delete, Request, Sync, Together
from distsync.errors import (
    DeadlineError,
    DisconnectedError,
    DistsyncError,
    NodeExistsError,
    NoNodeError,
    SessionLostError,
)

Answer = TypeVar("Answer")
Given = TypeVar("Given")
Made = TypeVar("Made")

#: The connection or the session went while we asked: nothing is wrong with the question.
INTERRUPTED = (DisconnectedError, SessionLostError)

#: What was refused in the background is tried again after so long (seconds): nothing tells when it is allowed.
REFUSED_S = 5.0

#: What decoding data raises of which somebody has made no sense: no JSON, or other fields; nested too deep, or a number
#: without end.
DECODE_ERRORS = (ValueError, TypeError, KeyError, RecursionError, OverflowError)


def parent_of(path: str) -> str:
    """The path above ``path``."""
    return path.rpartition("/")[0] or "/"


def raise_first(answers: tuple[Any, ...]) -> None:
    """Raises the first exception among the answers of a Together, if there is one."""
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer


async def read(request: Request[Answer]) -> Answer:
    """The answer to a read, asked until it comes, through reconnects and sessions."""
    while True:
        try:
            return await request
        except INTERRUPTED:
            await Connected()


async def read_all(*requests: Request[Any]) -> tuple[Any, ...]:
    """The answers to reads sent together, asked until all come; NoNodeError stays in its place."""
    while True:
        answers = await Together(*requests)
        if not any(isinstance(answer, INTERRUPTED) for answer in answers):
            for answer in answers:
                if isinstance(answer, DistsyncError) and not isinstance(answer, NoNodeError):
                    raise answer
            return answers
        await Connected()


async def ensure(path: str, data: bytes = b"", *, container: bool = False) -> None:
    """The znode is there, with its parents. ``data`` counts only if it is made now."""
    while True:
        try:
            await Create(path, data, container=container)
            return
        except NodeExistsError:
            return
        except NoNodeError:
            await ensure(parent_of(path))
        except INTERRUPTED:
            await Connected()


async def delete_own(path: str, session_id: int) -> bool:
    """Our ephemeral is gone, or, at a deadline, will surely be. False: it was gone before."""
    try:
        await Delete(path)
    except (NoNodeError, SessionLostError):
        return False
    except DeadlineError:
        await Background(delete_until_session_ends(path, session_id))
    except DisconnectedError:
        try:
            await delete_until_session_ends(path, session_id)
        except BaseException as error:
            await Background(delete_until_session_ends(path, session_id))
            if not isinstance(error, DeadlineError):
                raise
    return True


async def try_delete_own(path: str, session_id: int) -> bool:
    """As delete_own, for a call that continues: False at its deadline, so that it does not wait for another answer."""
    try:
        await Delete(path)
    except (NoNodeError, SessionLostError):
        return True
    except (DeadlineError, DisconnectedError) as error:
        await Background(delete_until_session_ends(path, session_id))
        return isinstance(error, DisconnectedError)
    return True


async def delete_until_session_ends(path: str, session_id: int) -> None:
    """Guaranteed delete: goes on until the ephemeral is gone or its session is over."""
    while (await Connected()).session_id == session_id:
        try:
            await Delete(path)
            return
        except (NoNodeError, SessionLostError):
            return
        except DisconnectedError:
            continue


async def delete_guaranteed(path: str) -> bool:
    """Guaranteed delete of what bears a name that nobody uses twice, of whichever session of ours it is: when a leader
    dies that has said that a session is over, the next one may let it, and its znodes, live for a whole time-out beside
    those of our next session. False: it was gone before."""
    perhaps = False
    while True:
        try:
            await Delete(path)
            return True
        except NoNodeError:
            return perhaps
        except INTERRUPTED as error:
            perhaps = perhaps or isinstance(error, DisconnectedError)
            await Connected()


async def cancel_pending_create(directory: str, guid: str) -> None:
    """As delete_guaranteed, for an ephemeral whose sequence number never became known.

    The ephemeral may belong to a later session than the one known when it was requested, or to an earlier one.
    """
    while True:
        await Connected()
        _, listing = await Together(Sync(directory), Children(directory))
        if isinstance(listing, INTERRUPTED):
            continue
        if isinstance(listing, DistsyncError):
            return
        for name in listing.names:
            if guid in name:
                await delete_guaranteed(f"{directory}/{name}")
        return


Work = Callable[[], Coroutine[Any, Any, object]]


class DeferredWork:
    """What the calls of one process have left to be done; whose own call comes later can see to it that it is done."""

    def __init__(self) -> None:
        self._works: list[Work] = []

    async def defer(self, work: Work) -> None:
        """This is done apart from the call, as soon as there is a connection."""
        await Background(self.deferred(work))

    def deferred(self, work: Work) -> Coroutine[Any, Any, None]:
        """The same, as a protocol for the background."""
        self._works.append(work)
        return self._finish(work)

    async def finish(self) -> None:
        """All of it is done."""
        for work in tuple(self._works):
            await self._finish(work)

    async def _finish(self, work: Work) -> None:
        """What a deadline or Ctrl-C ends is still to be done."""
        ended = True
        try:
            await work()
        except BaseException as error:
            ended = isinstance(error, Exception) and not isinstance(error, DeadlineError)
            raise
        finally:
            if ended and work in self._works:
                self._works.remove(work)


def attempted(function: Callable[[Given], Made], argument: Given) -> tuple[Made | None, Exception | None]:
    """What a function of the user's makes of it, or raises: its own error, and none that ends the call meanwhile."""
    try:
        return function(argument), None
    except Exception as error:
        return None, error
