from __future__ import annotations

import pytest
import torch

from arena.config import RandomOpenings
from arena.envs.base import Group
from arena.matches.play import Openings, random_decisions

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
    # The second environment asks for nobody yet, the third has no opening.
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
