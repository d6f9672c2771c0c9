from __future__ import annotations

import random

import numpy as np
import torch

from arena.matches.seeds import Stream, derived_seed, environment_seeds, seed_everything


def test_streams_and_indices_are_different_seeds() -> None:
    seeds = {derived_seed(7, stream, index) for stream in Stream for index in range(5)}
    assert len(seeds) == 5 * len(Stream)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derived_seed(7, Stream.WEIGHTS, 2) == derived_seed(7, Stream.WEIGHTS, 2)
    assert derived_seed(7, Stream.WEIGHTS) != derived_seed(8, Stream.WEIGHTS)


def test_an_environments_seed_does_not_depend_on_how_many_there_are() -> None:
    assert environment_seeds(3, num_envs=9)[:4] == environment_seeds(3, num_envs=4)
    assert not set(environment_seeds(3, num_envs=9)) & set(environment_seeds(3, num_envs=9, wave=1))


def test_all_that_users_may_draw_from_is_seeded() -> None:
    def draws() -> tuple[float, ...]:
        generator = seed_everything(5, device=torch.device("cpu"))
        drawn = torch.rand((), generator=generator), torch.rand(())
        return (*map(float, drawn), float(np.random.rand()), random.random())

    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        assert draws() == draws()
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
