"""Several ranks learn what one process would from all their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from arena.config import NetworkConfig
from arena.errors import NonFiniteError
from arena.experience import Rollout, Sequences
from arena.learning.hyperparameters import PpoHyperparameters, PpoSettings
from arena.learning.ppo import Ppo
from arena.normalization import Exchange
from tests.arena.learning import test_ppo_recurrent as recurrent
from tests.arena.learning.test_ppo import digest, make, play
from tests.arena.ranks import in_ranks

NORMALIZED = NetworkConfig(hidden_sizes=(16, 16))
# A single minibatch has the same rows in any order, so the results must be equal.
WHOLE = {"num_minibatches": 1, "num_epochs": 3}


def part(rollout: Rollout, first: int, end: int) -> Rollout:
    rows = slice(first, end)
    return replace(
        rollout,
        observation=rollout.observation[rows],
        action_mask=None if rollout.action_mask is None else rollout.action_mask[rows],
        action=rollout.action[rows],
        log_prob=rollout.log_prob[rows],
        value=rollout.value[rows],
        advantage=rollout.advantage[rows],
        return_=rollout.return_[rows],
    )


def update_in_ranks(
    ranks: Sequence[Ppo], rollout: Rollout, ends: Sequence[int], *, seed: int = 3
) -> list[dict[str, float]]:
    """Divide a rollout among ranks, and let them learn from it."""

    def task(ppo: Ppo, share: Rollout, rank: int) -> Callable[[Exchange], dict[str, float]]:
        def run(exchange: Exchange) -> dict[str, float]:
            ppo.join(exchange)
            generator = torch.Generator().manual_seed(seed + rank)
            return ppo.update(share, generator=generator)

        return run

    shares = [part(rollout, a, b) for a, b in zip([0, *ends], ends, strict=False)]
    return in_ranks([task(*one) for one in zip(ranks, shares, range(9), strict=False)])


def state(ppo: Ppo) -> dict[str, torch.Tensor]:
    return {**ppo.weights(), **{f"o.{k}": v for k, v in ppo.optimizer_state().items()}}


@pytest.mark.parametrize("ends", [(32, 64), (10, 64), (64, 64), (0, 20, 64)], ids=str)
@pytest.mark.parametrize(
    ("hyperparameters", "settings"),
    [
        ({}, {}),
        ({"value_clip": 0.2, "kl_coef": 0.1, "magnet_coef": 0.05, "magnet_rate": 0.1}, {}),
        ({"desired_kl": 1e-6, "ema_decay": 0.9}, {"normalize_returns": False}),
        ({"target_kl": 1e-6}, {"advantage_normalization": "minibatch"}),
    ],
    ids=["plain", "magnet", "kl", "minibatch"],
)
def test_ranks_learn_as_one_process_from_all_rows(
    hyperparameters: dict[str, Any], settings: dict[str, Any], ends: tuple[int, ...]
) -> None:
    def new() -> Ppo:
        return make(
            PpoHyperparameters(**WHOLE, **hyperparameters),
            network=NORMALIZED,
            settings=PpoSettings(**settings),
        )

    alone, ranks = new(), [new() for _ in ends]
    for seed in range(2):
        rollout = play(alone, seed=seed)
        expected = alone.update(rollout, generator=torch.Generator().manual_seed(seed))
        found = update_in_ranks(ranks, rollout, ends)
        for metrics in found:
            # The learning rate follows the KL in all ranks at once, or in none.
            assert metrics == pytest.approx(expected, rel=1e-4, abs=1e-6)
            assert metrics == found[0]
    for ppo in ranks:
        torch.testing.assert_close(state(ppo), state(alone), rtol=1e-4, atol=1e-5)
        assert digest(state(ppo)) == digest(state(ranks[0])), "the very same bits"


def test_a_rank_with_fewer_rows_than_minibatches_takes_as_many_steps() -> None:
    ranks = [make(PpoHyperparameters(num_minibatches=8, num_epochs=2)) for _ in range(2)]
    found = update_in_ranks(ranks, play(ranks[0], num_decisions=23), (3, 23))
    assert [one["optimizer/updates"] for one in found] == [16.0, 16.0]
    assert digest(state(ranks[0])) == digest(state(ranks[1]))


@pytest.mark.parametrize("core", ["gru", "lstm"])
def test_sequences_are_divided_and_weigh_by_their_decisions(core: str) -> None:
    """One rank has the first of four chains, the other one the rest; one decision is missing."""
    alone = recurrent.make(core)
    rollout = recurrent.play(alone, max_length=None)
    assert rollout.sequences is not None
    alone.update(rollout, generator=torch.Generator().manual_seed(1))
    table, begin = rollout.sequences.rows, rollout.sequences.state
    shares = []
    for chains in (slice(0, 1), slice(1, 4)):
        index = torch.sort(table[chains].flatten()).values
        place = torch.full((len(rollout),), -1)
        place[index] = torch.arange(len(index))
        shares.append(
            replace(
                part(rollout, 0, 0),
                **{
                    name: getattr(rollout, name)[index]
                    for name in ("observation", "action", "log_prob", "value", "advantage")
                },
                return_=rollout.return_[index],
                sequences=Sequences(rows=place[table[chains]], state=begin[chains]),
            )
        )
    ranks = [recurrent.make(core) for _ in shares]

    def task(ppo: Ppo, share: Rollout) -> Callable[[Exchange], dict[str, float]]:
        def run(exchange: Exchange) -> dict[str, float]:
            ppo.join(exchange)
            return ppo.update(share, generator=torch.Generator().manual_seed(1))

        return run

    in_ranks([task(*one) for one in zip(ranks, shares, strict=True)])
    for ppo in ranks:
        torch.testing.assert_close(state(ppo), state(alone), rtol=1e-4, atol=1e-5)


def test_no_rows_in_any_rank_change_nothing() -> None:
    ranks = [make(), make()]
    before = digest(state(ranks[0]))
    assert update_in_ranks(ranks, play(ranks[0], num_decisions=4), (0, 0)) == [{}, {}]
    assert digest(state(ranks[0])) == before


def test_numbers_that_are_not_finite_in_one_rank_skip_the_step_in_all() -> None:
    ranks = [make(PpoHyperparameters(**WHOLE)) for _ in range(2)]
    rollout = play(ranks[0])
    rollout.log_prob[60] = float("nan")
    before = {name: p.clone() for name, p in ranks[0]._network.named_parameters()}
    with pytest.raises(NonFiniteError, match="not finite in 3 updates in a row"):
        update_in_ranks(ranks, rollout, (32, 64))
    for ppo in ranks:
        torch.testing.assert_close(dict(ppo._network.named_parameters()), before, rtol=0, atol=0)


def test_alone_again_an_update_is_that_of_one_process() -> None:
    one, other = make(), make()
    rollout = play(one)
    one.join(lambda values: values.unsqueeze(0))
    one.join(None)
    for ppo in (one, other):
        ppo.update(rollout, generator=torch.Generator().manual_seed(1))
    assert digest(state(one)) == digest(state(other))
