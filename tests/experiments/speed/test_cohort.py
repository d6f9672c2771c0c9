"""The hand-written cohort plays Connect Four and learns, each policy as it does alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments.speed.cohort import Cohort, CohortSettings
from tools.bench.loop import Games

CPU = torch.device("cpu")
RATES, COEFS = (3e-3, 1e-3, 1e-2), (0.02, 0.1, 0.01)
SETTINGS = CohortSettings(
    learning_rates=RATES,
    entropy_coefs=COEFS,
    num_games=16,
    rollout_length=8,
    num_epochs=2,
    num_minibatches=4,
    hidden_sizes=(16, 8),
    precision="float64",
)


class _Told(Cohort):
    """A cohort whose noise and order are given."""

    def __init__(self, settings: CohortSettings, draws: Sequence[tuple[torch.Tensor, ...]]) -> None:
        super().__init__(settings, device=CPU, mode="eager")
        self._draws = iter(draws)

    def _draw(self) -> None:
        noise, order = next(self._draws)
        self.noise.copy_(noise)
        self.order.copy_(order)


def drawn(settings: CohortSettings, *, number: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Draw noise and orders of several rollouts."""
    cohort = Cohort(settings, device=CPU, mode="eager")
    found = []
    for _ in range(number):
        cohort._draw()
        found.append((cohort.noise.clone(), cohort.order.clone()))
    return found


def test_games_are_those_of_the_other_loop() -> None:
    settings = replace(SETTINGS, learning_rates=(1e-3,), entropy_coefs=(0.0,))
    cohort = Cohort(settings, device=CPU, mode="eager")
    games = Games(settings.num_games)
    generator = torch.Generator().manual_seed(1)
    num_over = 0
    for _ in range(200):
        observation, legal = cohort._look()
        assert np.array_equal(observation[0].numpy(), games.observation())
        assert np.array_equal(legal[0].numpy(), games.legal())
        # So much noise that the network has no say: even play over the legal columns.
        noise = 1e3 * torch.rand(legal.shape, generator=generator, dtype=torch.float64)
        _, _, action, numbers, own, stones = cohort._choose(noise)
        won, over = games.step(action[0].numpy())
        assert np.array_equal(numbers[0, :, 2].detach().numpy() > 0, won)
        assert np.array_equal(numbers[0, :, 3].detach().numpy() == 0, over)
        num_over += int(over.sum())
        cohort.own.copy_(own)
        cohort.stones.copy_(stones)
    assert num_over > 100


def test_a_policy_goes_the_way_that_it_goes_alone() -> None:
    draws = drawn(SETTINGS, number=6)
    together = _Told(SETTINGS, draws)
    for _ in draws:
        together.iterate()
    for p in range(len(RATES)):
        own = [(noise[p : p + 1], order) for noise, order in draws]
        settings = replace(
            SETTINGS, learning_rates=RATES[p : p + 1], entropy_coefs=COEFS[p : p + 1]
        )
        alone = _Told(settings, own)
        first = alone.weights.clone()
        for _ in own:
            alone.iterate()
        assert torch.equal(alone.action[0], together.action[p])
        assert torch.allclose(alone.weights[0], together.weights[p], rtol=0.0, atol=1e-9)
        assert (alone.weights - first).abs().max() > 1e-3


def test_numbers_that_are_not_finite_stay_with_their_policy() -> None:
    draws = drawn(SETTINGS, number=2)
    sane, ill = _Told(SETTINGS, draws), _Told(SETTINGS, draws)
    ill.weights[1] = torch.nan
    for _ in draws:
        sane.iterate()
        ill.iterate()
    others = [0, 2]
    assert torch.equal(sane.weights[others], ill.weights[others])
    assert torch.equal(sane.first_moments[others], ill.first_moments[others])
    assert ill.metrics()["skipped"] == [0.0, 1.0, 0.0]
    assert (ill.steps[:, 0] == torch.tensor([16.0, 0.0, 16.0])).all()


def test_minibatches_must_be_equal() -> None:
    with pytest.raises(ValueError, match="num_minibatches must divide 128 decisions, got 3"):
        Cohort(replace(SETTINGS, num_minibatches=3), device=CPU, mode="eager")


def test_it_learns() -> None:
    settings = CohortSettings(
        learning_rates=(2.5e-3, 1e-9),
        entropy_coefs=(0.02, 0.02),
        num_games=64,
        rollout_length=16,
        num_minibatches=4,
        hidden_sizes=(64,),
    )
    cohort = Cohort(settings, device=CPU, mode="eager")
    for _ in range(40):
        assert cohort.iterate() == 2 * 64 * 16
    learned, untrained = (
        np.mean([cohort.score_against_random(seed=seed)[p] for seed in range(4)]) for p in range(2)
    )
    # 256 games each; the second policy has all but not learned.
    assert learned > untrained + 0.1
    assert learned > 0.75
