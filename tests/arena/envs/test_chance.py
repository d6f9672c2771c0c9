from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from arena.envs.chance import episode_seed, episode_seeds, seed_of_episode, uniform, uniforms

SEEDS = st.integers(0, 2**63 - 1)


def test_the_hash_is_splitmix64() -> None:
    # The first output of SplitMix64 seeded with 0 (Vigna's reference), shifted to 53 bits.
    assert uniform(0, draw=0) == (0xE220A8397B1DCDAF >> 11) * 2.0**-53


@given(seeds=st.lists(SEEDS, min_size=1, max_size=20), episode=st.integers(0, 2**40))
def test_tensors_and_integers_give_the_same_episode_seeds(seeds: list[int], episode: int) -> None:
    many = episode_seeds(torch.tensor(seeds), episodes=torch.full((len(seeds),), episode))
    assert many.tolist() == [episode_seed(seed, episode=episode) for seed in seeds]


@given(seed=SEEDS, episode=st.integers(0, 2**40))
def test_an_episode_is_the_first_one_of_another_seed(seed: int, episode: int) -> None:
    found = seed_of_episode(seed, episode=episode)
    assert 0 <= found < 2**63
    assert episode_seed(found, episode=0) == episode_seed(seed, episode=episode)


@given(keys=st.lists(SEEDS, min_size=1, max_size=20), draw=st.integers(0, 10_000))
def test_tensors_and_integers_draw_the_same_numbers(keys: list[int], draw: int) -> None:
    many = uniforms(torch.tensor(keys), draw=draw)
    assert many.dtype == torch.float64
    assert many.tolist() == [uniform(key, draw=draw) for key in keys]
    assert all(0.0 <= number < 1.0 for number in many.tolist())


def test_draws_are_uniform_and_independent_of_their_neighbours() -> None:
    keys = episode_seeds(torch.arange(20_000), episodes=torch.zeros(20_000, dtype=torch.int64))
    first, second = uniforms(keys, draw=0), uniforms(keys, draw=1)
    for draws in (first, second):
        counts = torch.histc(draws, bins=10, min=0.0, max=1.0)
        chi_square = float(((counts - 2000.0) ** 2 / 2000.0).sum())
        assert chi_square < 27.9  # one in a thousand at 9 degrees of freedom
    correlation = torch.corrcoef(torch.stack((first, second)))[0, 1]
    assert abs(float(correlation)) < 0.025


def test_episodes_of_one_seed_and_seeds_of_one_episode_differ() -> None:
    by_episode = episode_seeds(torch.full((1000,), 3), episodes=torch.arange(1000))
    by_seed = episode_seeds(torch.arange(1000), episodes=torch.full((1000,), 3))
    assert len(set(by_episode.tolist())) == len(set(by_seed.tolist())) == 1000
    assert int(by_episode.min()) >= 0
    assert int(by_episode.max()) < 2**31
