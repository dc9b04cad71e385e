"""A web service of which one instance at a time works. When that one is stopped, it resigns, and the next one works.

Install Starlette and uvicorn, and start it in several shells:   python examples/leader_service.py 8001    (a port each)
Ask an instance who works, and for its work:                     curl 127.0.0.1:8001; curl -L 127.0.0.1:8001/work
"""

import contextlib
import logging
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from distsync import asyncio, close_default

if len(sys.argv) < 2:
    sys.exit(__doc__)
election = asyncio.Election(f"http://127.0.0.1:{sys.argv[1]}", name="service")  # others see the address


async def lead() -> None:
    while True:
        try:
            async with election:
                while election.is_leader:  # False as soon as another instance may lead
                    app.state.steps += 1
                    await asyncio.sleep(0.1)
        except Exception:  # LockLostError, or an error of the work
            logging.exception("does not lead any more")
            await asyncio.sleep(1)


@contextlib.asynccontextmanager
async def lifespan(app: Starlette):
    await election.find_leader()  # without a server, the service does not start
    leading = asyncio.create_task(lead())
    yield
    leading.cancel()  # it resigns
    await asyncio.wait([leading])
    await asyncio.to_thread(close_default)


async def show(_: Request) -> Response:
    leader = await election.wait_for_leader(timeout=1)
    return JSONResponse({"leader": leader and leader.data, "me": election.is_leader})


async def work(_: Request) -> Response:
    if election.is_leader:
        return JSONResponse({"steps": app.state.steps})
    leader = await election.wait_for_leader(timeout=1)
    return RedirectResponse(f"{leader.data}/work") if leader else Response(status_code=503)


app = Starlette(routes=[Route("/", show), Route("/work", work)], lifespan=lifespan)
app.state.steps = 0
uvicorn.run(app, port=int(sys.argv[1]), timeout_graceful_shutdown=3)  # requests that last longer are cancelled
