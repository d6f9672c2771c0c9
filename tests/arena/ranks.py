"""Ranks as threads of one process: exchanges without sockets, for oracles."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from arena.normalization import Exchange

T = TypeVar("T")

TIMEOUT_S = 30.0


def in_ranks(tasks: Sequence[Callable[[Exchange], T]]) -> list[T]:
    """Run one task for each rank, at the same time; an error in one ends all."""
    number = len(tasks)
    barrier = threading.Barrier(number, timeout=TIMEOUT_S)
    given: list[torch.Tensor | None] = [None] * number

    def exchange_of(rank: int) -> Exchange:
        def exchange(values: torch.Tensor) -> torch.Tensor:
            given[rank] = values.detach().clone()
            barrier.wait()
            rows = torch.stack([one for one in given if one is not None])
            # The second barrier keeps ranks from writing before all have read.
            barrier.wait()
            return rows

        return exchange

    def run(rank: int) -> T:
        try:
            return tasks[rank](exchange_of(rank))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(number) as pool:
        futures = [pool.submit(run, rank) for rank in range(number)]
        errors = [e for f in futures if (e := f.exception()) is not None]
        real = [e for e in errors if not isinstance(e, threading.BrokenBarrierError)]
        if errors:
            raise (real or errors)[0]
        return [future.result() for future in futures]
