"""The same asked of many, some at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

__all__ = ["gather"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")


async def gather(
    ask: Callable[[Item], Awaitable[Answer]], items: Iterable[Item], *, at_once: int
) -> list[Answer]:
    """What `ask` answers for each, in their order, with no more than `at_once` under way; raises what the first raises."""
    limit = asyncio.Semaphore(at_once)

    async def one(item: Item) -> Answer:
        async with limit:
            return await ask(item)

    return await asyncio.gather(*map(one, items))
