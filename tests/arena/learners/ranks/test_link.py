from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import torch

from arena.envs.workers.shared_arrays import anonymous_memory
from arena.learners.ranks.link import MIN_BYTES, Link, RankFailed, RankLost
from arena.types import AssignmentId, PolicyId
from arena.wire.messages import Failed, InFlight

FAILED = Failed(
    assignment_id=AssignmentId(3),
    attempt=1,
    kind="environment",
    reason="the board is on fire",
    policy=PolicyId("player/p000"),
    key=None,
)


@pytest.fixture(params=[2, 4])
def links(request: pytest.FixtureRequest) -> Iterator[list[Link]]:
    number = request.param
    pairs = [socket.socketpair() for _ in range(number - 1)]
    with anonymous_memory(MIN_BYTES) as fd, ExitStack() as stack:
        ours = [(rank, mine) for rank, (mine, _) in enumerate(pairs, start=1)]
        made = [Link(ours, os.dup(fd), rank=0, number=number)]
        made += [
            Link([(0, theirs)], os.dup(fd), rank=rank, number=number)
            for rank, (_, theirs) in enumerate(pairs, start=1)
        ]
        for link in made:
            stack.callback(link.close)
        yield made


def together(links: list[Link], task: Callable[[Link], object]) -> list[object]:
    with ThreadPoolExecutor(len(links)) as pool:
        return [one.result(timeout=30.0) for one in [pool.submit(task, link) for link in links]]


def test_everybody_gets_the_numbers_of_all_whatever_their_size(links: list[Link]) -> None:
    def task(link: Link) -> int:
        # Larger, smaller and larger again than what there is room for, of several dtypes.
        sizes = [3, 5000, 1, 200_000, 7, *range(1, 400)]
        for turn, size in enumerate(sizes):
            for dtype in (torch.float32, torch.float64, torch.uint8):
                own = torch.full((size,), float((10 * link.rank + turn) % 200), dtype=dtype)
                rows = link.exchange(own)
                assert rows.shape == (link.number, size)
                expected = [(10 * rank + turn) % 200 for rank in range(link.number)]
                # The first and the last number of each row: they are of one exchange.
                assert rows[:, 0].tolist() == rows[:, -1].tolist() == expected
                assert rows.dtype == dtype
        return len(sizes)

    assert set(together(links, task)) == {404}


def test_messages_and_numbers_go_side_by_side(links: list[Link]) -> None:
    sent = InFlight(entrants=(), num_envs=3)

    def task(link: Link) -> object:
        link.exchange(torch.ones(3))
        if link.rank:
            link.send(0, sent)
            return link.receive(0, InFlight)
        found = [link.receive(rank, InFlight) for rank in range(1, link.number)]
        for rank in range(1, link.number):
            link.send(rank, found[0])
        return found[-1]

    assert together(links, task) == [sent] * len(links)


def test_a_failure_comes_in_place_of_numbers(links: list[Link]) -> None:
    links[-1].send(0, FAILED)

    def task(link: Link) -> object:
        if link.rank == link.number - 1:
            return None
        if link.rank:
            # It waits until rank 0 ends all.
            with pytest.raises(RankLost):
                link.exchange(torch.ones(3))
            return None
        with pytest.raises(RankFailed, match="on fire") as error:
            link.exchange(torch.ones(3))
        link.close()
        return error.value.rank, error.value.failed

    assert together(links, task)[0] == (len(links) - 1, FAILED)


@pytest.mark.parametrize("sent", [b"", b"x", b"m\x02\x00\x00\x00\xff\xff", b"m\xff\xff\xff\xff"])
def test_a_rank_that_ends_or_speaks_otherwise_is_lost(links: list[Link], sent: bytes) -> None:
    (end,) = links[1]._sockets.values()
    if sent:
        end.sendall(sent)
    links[1].close()
    with pytest.raises(RankLost, match="rank 1 has ended"):
        links[0].receive(1, InFlight)
    with pytest.raises(RankLost):
        links[0].exchange(torch.ones(1))


def test_counts_and_the_stop_are_seen_by_all(links: list[Link]) -> None:
    for link in links:
        link.count(5 * link.rank)
        link.count(1)
    assert links[0].counts() == (2 * len(links), sum(5 * r + 1 for r in range(len(links))))
    assert not any(link.is_told_to_stop for link in links)
    links[0].is_told_to_stop = True
    assert all(link.is_told_to_stop for link in links)
