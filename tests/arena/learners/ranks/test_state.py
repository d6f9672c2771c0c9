from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch

from arena.errors import ConfigError
from arena.learners.ranks.crew import is_same_state, share_digests, share_state
from arena.learning.ppo import Ppo
from arena.normalization import Exchange
from arena.types import Digest
from tests.arena.learning.test_ppo import make, train
from tests.arena.learning.test_ranks import state
from tests.arena.ranks import in_ranks


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
