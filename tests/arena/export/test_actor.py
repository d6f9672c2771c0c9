from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from arena.errors import CheckpointCorrupt
from arena.export.actor import ExportedActor, load_export_weights
from arena.export.card import Card
from arena.export.write import Written

pytestmark = pytest.mark.xdist_group("exports")

Policy = tuple[Card, dict[str, torch.Tensor]]


def test_weights_come_back_as_they_were(board_policy: Policy, board_export: Written[Card]) -> None:
    network, weights = load_export_weights(board_export.directory)
    assert network == board_policy[0].network
    assert weights.keys() == board_policy[1].keys()
    assert all(torch.equal(weights[name], board_policy[1][name]) for name in weights)


@pytest.mark.parametrize(
    ("name", "reader"),
    [("policy.onnx", ExportedActor), ("policy.safetensors", load_export_weights)],
)
def test_an_altered_file_is_refused(
    board_export: Written[Card], tmp_path: Path, name: str, reader: Callable[[Path], object]
) -> None:
    copy = tmp_path / "champion"
    shutil.copytree(board_export.directory, copy)
    data = bytearray((copy / name).read_bytes())
    data[-1] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises(CheckpointCorrupt, match=name):
        reader(copy)
