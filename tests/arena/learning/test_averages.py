from __future__ import annotations

import torch
from torch import nn

from arena.learning.ppo import AveragedNetwork, with_prefix, without_prefix


def test_follows_and_restarts_without_sharing_memory() -> None:
    live = nn.Linear(2, 1)
    with torch.no_grad():
        live.weight.fill_(0.0)
        live.bias.fill_(4.0)
    average = AveragedNetwork(live)
    with torch.no_grad():
        live.weight.fill_(1.0)
    average.follow(0.25)
    assert average.tensors()["weight"].tolist() == [[0.25, 0.25]]
    average.follow(0.25)
    # 1 - (3/4)^2
    assert average.tensors()["weight"].tolist() == [[0.4375, 0.4375]]
    assert average.network(torch.ones(1, 2)).item() == 4.875
    assert live.weight.tolist() == [[1.0, 1.0]]
    average.restart()
    assert average.tensors()["weight"].tolist() == [[1.0, 1.0]]
    assert not average.network.weight.requires_grad
    assert live.weight.requires_grad


def test_buffers_are_the_live_ones() -> None:
    live = nn.BatchNorm1d(1)
    average = AveragedNetwork(live)
    live(torch.tensor([[0.0], [10.0]]))
    average.follow(0.0)
    assert torch.equal(average.network.get_buffer("running_mean"), live.get_buffer("running_mean"))
    assert average.network.get_buffer("running_mean").item() == 0.5


def test_prefixes() -> None:
    a, b = torch.ones(1), torch.zeros(1)
    both = {**with_prefix("live.", {"w": a}), "exp_avg.w": b}
    assert both == {"live.w": a, "exp_avg.w": b}
    assert without_prefix("live.", both) == {"w": a}
