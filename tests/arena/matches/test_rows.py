from __future__ import annotations

import pytest
import torch

from arena.envs.base import Group
from arena.matches.recurrent_state import Rows


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
