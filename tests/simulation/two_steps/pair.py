"""A protocol of two steps, for the tests of the report."""

from __future__ import annotations

from distsync._protocols.steps import Create, Delete, GetData, Signal, Wait


async def both(path: str) -> None:
    await write(path)
    await Wait(Signal(), limit=0.5)


async def write(path: str) -> None:
    await Create(path, ephemeral=True)


async def never(path: str) -> None:
    await Delete(
        path,
    )
    return await GetData(path), await GetData(path)
