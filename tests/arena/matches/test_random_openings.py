from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from arena.config import RandomOpenings
from arena.envs.base import Group
from arena.matches.play import Openings, random_decisions
from arena.matches.recurrent_state import Rows
from arena.matches.seeds import Stream, derived_seed, environment_seeds, seed_everything

CPU = torch.device("cpu")


def groups(agent_index: list[list[int]]) -> dict[str, Group]:
    index = torch.tensor(agent_index)
    return {"player": Group(index, torch.zeros(*index.shape, 1), None)}


def make(share: float, max_decisions: int, *, num_envs: int) -> Openings:
    settings = RandomOpenings(share=share, max_decisions=max_decisions)
    return Openings(settings, num_envs=num_envs, num_agents=2, device=CPU)


def test_without_a_share_nothing_is_drawn() -> None:
    openings, generator = make(0.0, 3, num_envs=4), torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert not openings.begin(torch.ones(4, dtype=torch.bool), generator=generator).any()
    assert openings.claim(groups([[0]] * 4)) is None
    assert torch.equal(generator.get_state(), before)


def test_share_and_length_are_as_asked() -> None:
    openings, generator = make(0.25, 4, num_envs=4000), torch.Generator().manual_seed(0)
    opened = openings.begin(torch.ones(4000, dtype=torch.bool), generator=generator)
    assert float(opened.float().mean()) == pytest.approx(0.25, abs=0.03)
    lengths = torch.zeros(4000, dtype=torch.int64)
    for _ in range(4):
        claimed = openings.claim(groups([[0]] * 4000))
        assert claimed is not None
        lengths += claimed.sum(dim=1)
    assert openings.claim(groups([[0]] * 4000)) is None
    assert torch.equal(lengths > 0, opened)
    counts = torch.bincount(lengths[opened], minlength=5)[1:] / opened.sum()
    torch.testing.assert_close(counts, torch.full((4,), 0.25), rtol=0, atol=0.06)


def test_the_first_agents_of_those_at_once_are_random_and_others_count_nothing() -> None:
    openings, generator = make(1.0, 1, num_envs=3), torch.Generator()
    begins = torch.tensor([True, True, False])
    assert openings.begin(begins, generator=generator).tolist() == [True, True, False]
    # The second environment has no decision yet, the third has no opening.
    found = openings.claim(groups([[1, 0], [-1, -1], [0, 1]]))
    assert found is not None
    assert found.tolist() == [[True, False], [False, False], [False, False]]
    found = openings.claim(groups([[0, 1], [1, -1], [0, 1]]))
    assert found is not None
    assert found.tolist() == [[False, False], [False, True], [False, False]]


def test_random_agents_as_decisions() -> None:
    random = torch.tensor([[True, False], [False, True]])
    agent_index = torch.tensor([[1, 0], [-1, 1]])
    assert random_decisions(random, agent_index).tolist() == [[False, True], [False, True]]


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


@pytest.mark.parametrize("some", [False, True])
def test_what_is_taken_is_put_back(some: bool) -> None:
    observation = torch.arange(12.0).reshape(3, 2, 2)
    mask = torch.rand(3, 2, 4, generator=torch.Generator().manual_seed(0)) < 0.5
    group = Group(torch.tensor([[0, 1]] * 3), observation, mask)
    where = torch.tensor([[True, not some], [True, True], [not some, True]])
    rows = Rows(group, where=where)
    assert len(rows) == int(where.sum())
    assert rows.index.tolist() == where.flatten().nonzero().flatten().tolist()
    assert torch.equal(rows.observation, observation[where])
    assert rows.action_mask is not None
    assert torch.equal(rows.action_mask, mask[where])
    target = torch.full((3, 2), -1.0)
    rows.put(target, torch.arange(float(len(rows))))
    assert torch.equal(target[where], torch.arange(float(len(rows))))
    assert (target[~where] == -1.0).all()


def test_without_masks_there_are_none() -> None:
    group = Group(torch.zeros(2, 1, dtype=torch.int64), torch.zeros(2, 1, 3), None)
    rows = Rows(group, where=torch.zeros(2, 1, dtype=torch.bool))
    assert len(rows) == 0
    assert rows.action_mask is None
    assert rows.observation.shape == (0, 3)
