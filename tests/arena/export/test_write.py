from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from msgspec import structs

from arena.errors import CheckpointCorrupt
from arena.export.card import Card, read_card
from arena.export.write import Written, write_export

pytestmark = pytest.mark.xdist_group("exports")

Policy = tuple[Card, dict[str, torch.Tensor]]


def test_an_export_is_five_files_whose_digests_are_on_the_card(board_export: Written[Card]) -> None:
    directory = board_export.directory
    names = {path.name for path in directory.iterdir()}
    assert names == {"policy.onnx", "policy.safetensors", "card.json", "card.md", "champion.py"}
    document = json.loads((directory / "card.json").read_text())
    assert set(document["files"]) == names - {"card.json"}
    for name, record in document["files"].items():
        data = (directory / name).read_bytes()
        assert record == {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
    assert document["files"]["policy.safetensors"]["sha256"] == document["weights_digest"]


def test_the_card_says_what_was_given_and_by_what_it_was_written(
    board_policy: Policy, board_export: Written[Card]
) -> None:
    card = read_card(board_export.directory)
    assert card == board_export.card
    assert card.versions["torch"] == torch.__version__
    assert (card.versions["opset"], card.versions["onnxruntime_at_least"]) == ("18", "1.14")
    assert card.value
    added = {"files": {}, "versions": board_policy[0].versions, "value": False}
    assert structs.replace(card, **added) == board_policy[0]
    assert "policy.onnx" in (board_export.directory / "card.md").read_text()


def test_weights_of_another_architecture_leave_nothing_behind(
    board_policy: Policy, number_policy: Policy, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointCorrupt, match="shape"):
        write_export(tmp_path / "champion", card=board_policy[0], weights=number_policy[1])
    assert list(tmp_path.iterdir()) == []
