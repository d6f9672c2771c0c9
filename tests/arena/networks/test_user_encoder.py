from __future__ import annotations

from pathlib import Path

import pytest
import torch

from arena.config import NetworkConfig
from arena.errors import ConfigError
from arena.networks.actor_critic import ActorCritic, make_actor_critic
from arena.networks.frozen import FrozenPolicy
from arena.processes.settings import SETTINGS
from arena.spaces import ObservationLayout
from tests.layouts import discrete

IMAGE_AND_SPEED = ObservationLayout.from_json(
    {
        "kind": "Dict",
        "spaces": {
            "eye": {"kind": "Box", "shape": [4, 4], "dtype": "uint8", "low": 0, "high": 255},
            "speed": {"kind": "Box", "shape": [2], "dtype": "float32", "low": -1, "high": 1},
        },
    }
)

SOURCE = '''
import torch
from torch import nn

class Mean(nn.Module):
    """Mean brightness beside a layer over the speed."""

    num_features = 4

    def __init__(self, observation):
        super().__init__()
        self.eye, self.speed = (leaf.place for leaf in observation.leaves)
        self.layer = nn.Linear(2, 3)

    def forward(self, rows):
        brightness = rows[:, self.eye].mean(dim=1, keepdim=True)
        return torch.cat([brightness, self.layer(rows[:, self.speed])], dim=1)

class Short(Mean):
    num_features = 5

class Nameless(Mean):
    num_features = None

class Batch(Mean):
    def __init__(self, observation):
        super().__init__(observation)
        self.norm = nn.BatchNorm1d(4)

def broken(observation):
    raise RuntimeError("no luck")

def number(observation):
    return 7

class Changing(Mean):
    def __init__(self, observation):
        super().__init__(observation)
        torch.set_default_dtype(torch.float64)

    def forward(self, rows):
        torch.set_default_dtype(torch.float64)
        return super().forward(rows)

class Wrong(Mean):
    def forward(self, rows):
        raise IndexError("no such row")

constant = 3
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's."""
    name = f"own_networks_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def make(reference: str, *, seed: int = 0) -> ActorCritic:
    network = NetworkConfig(encoder=reference, hidden_sizes=(8,))
    return make_actor_critic(network, observation=IMAGE_AND_SPEED, action=discrete(3), seed=seed)


def test_it_gets_scaled_rows_and_gives_features(module: str) -> None:
    network = make(f"{module}:Mean")
    rows = torch.zeros(2, 18)
    rows[:, :16] = 51.0
    rows[1, 16:] = 0.5
    assert network.encoder is not None
    features = network.encoder(network.normalize_observation(rows))
    assert features.shape == (2, 4)
    torch.testing.assert_close(features[:, 0], torch.tensor([0.2, 0.2]))
    assert network.trunk[0].in_features == 4
    assert {"encoder.module.layer.weight", "encoder.module.layer.bias"} <= set(network.state_dict())


def test_its_weights_are_a_function_of_the_seed(module: str) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, second = make(f"{module}:Mean"), make(f"{module}:Mean")
    assert torch.equal(state, torch.get_rng_state())
    name = "encoder.module.layer.weight"
    assert torch.equal(first.state_dict()[name], second.state_dict()[name])
    assert not torch.equal(
        first.state_dict()[name], make(f"{module}:Mean", seed=1).state_dict()[name]
    )


def test_it_is_made_with_arenas_settings_which_it_does_not_change(module: str) -> None:
    # An environment has settings of its own.
    SETTINGS.run(torch.set_default_dtype, torch.float64)
    network = make(f"{module}:Changing")
    assert torch.get_default_dtype() is torch.float32
    assert {tensor.dtype for tensor in network.state_dict().values()} == {torch.float32}


def test_a_frozen_copy_plays_the_same(module: str) -> None:
    network = make(f"{module}:Mean", seed=4)
    frozen = FrozenPolicy.from_weights(
        NetworkConfig(encoder=f"{module}:Mean", hidden_sizes=(8,)),
        network.state_dict(),
        observation=IMAGE_AND_SPEED,
        action=discrete(3),
        device=torch.device("cpu"),
    )
    rows = torch.rand(5, 18, generator=torch.Generator().manual_seed(0))
    assert torch.equal(frozen.logits(rows), network.logits(rows))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Short", r"must give features of shape \[N, num_features\], for 2 rows \[2, 5\], got \[2"),
        ("Nameless", "attribute num_features, an integer of at least 1, got None"),
        ("Batch", "float32 alone .*got norm.num_batches_tracked of torch.int64"),
        ("broken", "making it raised RuntimeError: no luck"),
        ("number", r"must make a torch.nn.Module, got int"),
        ("Wrong", "raised IndexError: no such row"),
        ("constant", "must name a class, got 3"),
        ("Missing", "has no 'Missing'"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(module: str, name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make(f"{module}:{name}")
