"""The smallest protocols: one step, and an ephemeral that is held and released."""

from __future__ import annotations

from typing import Any

from distsync._protocols.steps import Connected, Create, Delete, Hold, Loss, StopHolding


async def ask(step: Any) -> Any:
    return await step


async def stand(namespace: str, loss: Loss) -> str:
    """An ephemeral of ours, held."""
    session = await Connected()
    created = await Create(f"{namespace}/mine-", ephemeral=True, sequence=True)
    await Hold(created.path, session.session_id, loss)
    return created.path


async def leave(path: str, loss: Loss) -> None:
    await StopHolding(loss)
    await Delete(path)
