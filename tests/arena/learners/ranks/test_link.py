from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch

from arena.codec import from_msgpack, msgpack_bytes
from arena.envs.workers.shared_arrays import anonymous_memory
from arena.errors import ConfigError
from arena.learners.ranks.crew import (
    RankResult,
    is_same_state,
    merge_results,
    share_digests,
    share_state,
)
from arena.learners.ranks.link import MIN_BYTES, Link, RankFailed, RankLost
from arena.learning.ppo import Ppo
from arena.normalization import Exchange
from arena.rollout.measured import Measures, Spread
from arena.types import AssignmentId, Digest, Entrant, PairScore, PolicyId, Tally
from arena.wire.messages import Failed, InFlight
from tests.arena.learning.test_ppo import make, train
from tests.arena.learning.test_ranks import state
from tests.arena.ranks import in_ranks

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
        # The sizes alternate above and below the buffer's size, with several dtypes.
        sizes = [3, 5000, 1, 200_000, 7, *range(1, 400)]
        for turn, size in enumerate(sizes):
            for dtype in (torch.float32, torch.float64, torch.uint8):
                own = torch.full((size,), float((10 * link.rank + turn) % 200), dtype=dtype)
                rows = link.exchange(own)
                assert rows.shape == (link.number, size)
                expected = [(10 * rank + turn) % 200 for rank in range(link.number)]
                # The first and last number of each row show that both are of one exchange.
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
            # The peer waits until rank 0 ends all ranks.
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


@dataclass
class Ranks:
    rank: int
    number: int
    exchange: Exchange

    def begin(self, message: object) -> None:
        pass

    def results(self, own: Any) -> list[Any]:
        return [own]


def in_three(task: Callable[[Ranks], Any]) -> list[Any]:
    def of(rank: int) -> Callable[[Exchange], Any]:
        return lambda exchange: task(Ranks(rank, 3, exchange))

    return in_ranks([of(rank) for rank in range(3)])


def test_all_get_the_state_of_the_first_rank() -> None:
    ranks = [make(seed=seed) for seed in range(3)]
    train(ranks[0], num_rollouts=2)
    expected = state(ranks[0])
    in_three(lambda one: share_state(ranks[one.rank], one))
    for ppo in ranks:
        torch.testing.assert_close(state(ppo), expected, rtol=0, atol=0)
        assert ppo.learner_updates == ranks[0].learner_updates > 0


def test_other_weights_in_one_rank_are_found_by_all() -> None:
    ranks = [make() for _ in range(3)]
    assert in_three(lambda one: is_same_state(ranks[one.rank], one)) == [True] * 3
    with torch.no_grad():
        next(iter(ranks[2]._network.parameters())).view(-1)[0] += 1e-7
    assert in_three(lambda one: is_same_state(ranks[one.rank], one)) == [False] * 3


def test_digests_of_the_first_rank_reach_all() -> None:
    digests = (Digest("ab" * 32), Digest("00ff" * 16))
    found = in_three(lambda one: share_digests(digests if not one.rank else (), one, number=2))
    assert found == [digests] * 3


def test_an_algorithm_that_cannot_is_refused() -> None:
    class Alone:
        pass

    with pytest.raises(ConfigError, match="learner_cores must be 1 with algorithm Alone"):
        share_state(cast("Ppo", Alone()), Ranks(0, 2, lambda values: values))


ME, OTHER = Entrant("player/p000#0"), Entrant("bot:random")


def tally(other: Entrant, *, matches: int, returns: float) -> Tally:
    return Tally(
        entrants=(ME, other),
        matches=matches,
        pairs=(PairScore(first=0, second=1, wins=matches, draws=0, losses=0),),
        return_sum=(returns, -returns),
        return_sum_of_squares=(returns * returns, returns * returns),
        length_sum=7 * matches,
    )


def result(*, matches: int, low: float | None, void: int = 0) -> RankResult:
    height = Spread()
    for value in range(matches):
        height.add(float(value))
    return RankResult(
        tallies=(tally(OTHER, matches=matches, returns=1.5),),
        episodes=(tally(OTHER, matches=matches + 1, returns=1.5),),
        measures=(
            Measures(
                num_steps=32,
                low=low,
                high=low,
                figures={"height": height} if matches else {},
                num_trained=matches,
                num_decisions=10,
            ),
        ),
        in_flight=(InFlight(entrants=(ME, OTHER), num_envs=matches),),
        dropped=(PolicyId("player/p001"),),
        lost={"episode/dropped": 2.0, **({"episode/void": float(void)} if void else {})},
    )


def test_results_of_ranks_add_up() -> None:
    merged = merge_results(
        [result(matches=3, low=None), result(matches=2, low=-1.0, void=4), result(matches=0, low=2)]
    )
    assert [one.matches for one in merged.tallies] == [5]
    assert merged.tallies[0].length_sum == 35
    assert merged.tallies[0].return_sum == (4.5, -4.5)
    assert [one.matches for one in merged.episodes] == [8]
    assert merged.in_flight == (InFlight(entrants=(ME, OTHER), num_envs=5),)
    assert merged.dropped == (PolicyId("player/p001"),)
    assert merged.lost == {"episode/dropped": 6.0, "episode/void": 4.0}
    # The heights are 0, 1, 2 and 0, 1: mean 0.8, variance (0.64 + 0.04 + 1.44 + 0.64 + 0.04) / 5.
    found = merged.measures[0].metrics()
    assert found["environment/height_mean"] == 0.8
    assert abs(found["environment/height_deviation"] - 0.56**0.5) < 1e-12
    assert (found["reward/min"], found["reward/max"]) == (-1.0, 2.0)
    assert found["rollout/trained_share"] == 5 / 30
    assert found["rollout/steps_count"] == 32.0


def test_a_result_is_the_same_after_its_way() -> None:
    sent = result(matches=3, low=-1.0)
    body = msgpack_bytes(sent, is_ours=True)
    assert from_msgpack(body, RankResult, limit=len(body), is_ours=True) == sent
