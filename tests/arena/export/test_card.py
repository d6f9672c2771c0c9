from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from msgspec import structs

from arena.codec import from_json, plain
from arena.errors import CheckpointCorrupt, CheckpointMissing, DecodeError
from arena.export.card import Card, read_card
from arena.export.card_text import card_for_people

Policy = tuple[Card, dict[str, torch.Tensor]]


def test_a_card_survives_its_file(board_policy: Policy, tmp_path: Path) -> None:
    card, _ = board_policy
    (tmp_path / "card.json").write_bytes(card.to_json())
    assert read_card(tmp_path) == card
    assert read_card(tmp_path).environment.spec.digest == card.environment.spec.digest
    assert json.loads(card.to_json())["schema"] == 1


def test_keys_of_later_releases_are_ignored(board_policy: Policy, tmp_path: Path) -> None:
    card, _ = board_policy
    document = json.loads(card.to_json())
    document["mood"] = "confident"
    document["environment"]["weather"] = "rain"
    (tmp_path / "card.json").write_text(json.dumps(document))
    assert read_card(tmp_path) == card


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("{", "must be a JSON document"), ("{}", "is required"), ("[]", "must be a map")],
)
def test_a_damaged_card_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "card.json").write_text(text)
    with pytest.raises(CheckpointCorrupt, match=complaint):
        read_card(tmp_path)


def test_a_card_of_another_schema_is_refused(board_policy: Policy, tmp_path: Path) -> None:
    document = json.loads(board_policy[0].to_json()) | {"schema": 2}
    (tmp_path / "card.json").write_text(json.dumps(document))
    with pytest.raises(CheckpointCorrupt, match="schema"):
        read_card(tmp_path)


def test_a_directory_without_a_card_is_no_export(tmp_path: Path) -> None:
    with pytest.raises(CheckpointMissing, match="no export"):
        read_card(tmp_path)


def test_a_card_has_no_number_that_is_not_finite(board_policy: Policy) -> None:
    line = plain(board_policy[0].record[0])
    document = plain(board_policy[0])
    for number in ("NaN", "1e999"):
        text = json.dumps(document | {"record": [line | {"mean_return": 0.125}]})
        with pytest.raises(DecodeError, match="finite"):
            from_json(text.replace("0.125", number).encode(), Card)
    infinite = structs.replace(board_policy[0].record[0], mean_return=float("inf"))
    with pytest.raises(DecodeError, match="finite"):
        structs.replace(board_policy[0], record=(infinite,)).to_json()


def test_people_read_what_programs_read(board_policy: Policy) -> None:
    text = card_for_people(board_policy[0])
    assert text.startswith("# player/p003\n")
    assert "| rating | 812 (95%: 790 to 835); bot:random is 0" in text
    assert "| rated | by matches in which policies sample their actions |" in text
    greedy = structs.replace(board_policy[0].rating, mode="greedy")
    text_of_greedy = card_for_people(structs.replace(board_policy[0], rating=greedy))
    assert "| rated | by matches in which policies play their likeliest actions |" in text_of_greedy
    assert "| bot:random | greedy | player_0 | 10 | 9 | 7 | 1 | 2 | 0.750 | 0.500 |" in text
    assert "| learning_rate | 0.0003 |" in text
    assert "| player/p001 | 1 | 60000 | aaaaaaaaaaaa |" in text


def test_a_name_cannot_break_a_table(board_policy: Policy) -> None:
    card = board_policy[0]
    line = structs.replace(card.record[0], opponent="bot:a|b\n:C")
    text = card_for_people(structs.replace(card, record=(line,), lineage=()))
    assert "| bot:a\\|b :C | greedy |" in text
    assert "## Lineage\n\nNone." in text
