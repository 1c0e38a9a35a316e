"""Reading ahead with threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")

CHUNKS_PER_WORKER = 16
"""The fewest chunks of work for every worker, where there are as many items."""


def in_chunks(items: Sequence[Item], workers: int, most: int) -> list[Sequence[Item]]:
    """Items in their order, in chunks of at most `most`: to hand over one small item costs as much as to read it.

    Every worker gets many chunks, so that none is left waiting for the last one.

    >>> in_chunks("abcdefg", workers=1, most=2), [len(chunk) for chunk in in_chunks(range(640), workers=2, most=16)][:2]
    (['a', 'b', 'c', 'd', 'e', 'f', 'g'], [16, 16])
    """
    return cut(items, min(most, len(items) // (CHUNKS_PER_WORKER * workers)))


def cut(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Items in their order, in pieces of this size, or of 1 where it is smaller.

    >>> cut("abcde", 2)
    ['ab', 'cd', 'e']
    """
    return [items[start : start + max(1, size)] for start in range(0, len(items), max(1, size))]


def read_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int, ahead: int
) -> Generator[Result, None, None]:
    """Results of a function in the order of the items, computed by threads at most `ahead` items early.

    >>> list(read_ahead(str.upper, "abc", workers=2, ahead=4))
    ['A', 'B', 'C']
    """
    pool = ThreadPoolExecutor(workers, "icone-read", _share_cores, (max(1, torch.get_num_threads() // workers),))
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _share_cores(threads: int) -> None:
    """Let torch use this many threads within the calling thread: workers that each took all cores would hinder all.

    `torch.set_num_threads` would hold for all threads that begin later; OpenMP's own number is this thread's alone.
    """
    torch.get_num_threads()  # sets this thread's number once, not later
    _openmp().limit(limits=threads)


@cache
def _openmp() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="openmp")
