from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from arena.core import Actor, ActorInput
from arena.errors import CheckpointCorrupt, CheckpointMissing
from arena.export.actor import ExportedActor, load_export_weights
from arena.export.card import Card
from arena.export.write import Written
from arena.networks.frozen import FrozenPolicy
from tests.layouts import frozen_policy

Policy = tuple[Card, dict[str, torch.Tensor]]


def act(actor: Actor, observation: torch.Tensor, mask: torch.Tensor | None) -> list[int]:
    generator = torch.Generator().manual_seed(8)
    return actor.act(
        ActorInput(observation=observation, action_mask=mask), agent="player_0", generator=generator
    ).action.tolist()


def frozen(policy: Policy, *, greedy: bool) -> FrozenPolicy:
    card, weights = policy
    return frozen_policy(card, weights, greedy=greedy)


@pytest.mark.parametrize("greedy", [True, False])
def test_it_plays_like_the_policy_it_was_made_from(
    board_policy: Policy, board_export: Written, greedy: bool
) -> None:
    generator = torch.Generator().manual_seed(7)
    observation = torch.randint(2, (64, 84), generator=generator).float()
    mask = torch.rand(64, 7, generator=generator) < 0.5
    mask[:, 0] = True
    expected = act(frozen(board_policy, greedy=greedy), observation, mask)
    assert act(ExportedActor(board_export.directory, greedy=greedy), observation, mask) == expected
    assert len(set(expected)) > 1


@pytest.mark.parametrize("greedy", [True, False])
def test_it_undoes_the_flattening_of_numbers(
    number_policy: Policy, number_export: Written, greedy: bool
) -> None:
    expected = act(frozen(number_policy, greedy=greedy), torch.eye(16), None)
    assert (
        act(ExportedActor(number_export.directory, greedy=greedy), torch.eye(16), None) == expected
    )


def test_weights_come_back_as_they_were(board_policy: Policy, board_export: Written) -> None:
    network, weights = load_export_weights(board_export.directory)
    assert network == board_policy[0].network
    assert weights.keys() == board_policy[1].keys()
    assert all(torch.equal(weights[name], board_policy[1][name]) for name in weights)


@pytest.mark.parametrize(
    ("name", "reader"),
    [("policy.onnx", ExportedActor), ("policy.safetensors", load_export_weights)],
)
def test_an_altered_file_is_refused(
    board_export: Written, tmp_path: Path, name: str, reader: Callable[[Path], object]
) -> None:
    copy = tmp_path / "champion"
    shutil.copytree(board_export.directory, copy)
    data = bytearray((copy / name).read_bytes())
    data[-1] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises(CheckpointCorrupt, match=name):
        reader(copy)


def test_a_directory_that_is_no_export_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointMissing, match="no export"):
        ExportedActor(tmp_path)
