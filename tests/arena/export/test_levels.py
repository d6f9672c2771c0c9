"""Temperatures, and levels of an export: files, card, and the standalone player."""

from __future__ import annotations

import json
import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from msgspec import structs

from arena.checkpoints.files import sha256_bytes
from arena.checkpoints.tensors import serialize
from arena.codec import from_json
from arena.core import ActorInput
from arena.errors import ConfigError, DecodeError
from arena.export.actor import ExportedActor, load_export_weights, tempered
from arena.export.card import Card, CardLevel, read_card
from arena.export.champion import Champion, NoLevel, at_temperature, main
from arena.export.write import Written, write_export
from tests.arena.export.conftest import BOARD, level, make_policy
from tests.layouts import frozen_policy

pytestmark = pytest.mark.xdist_group("exports")

Policy = tuple[Card, dict[str, torch.Tensor]]
TEMPERATURE = 2.5


def test_a_temperature_is_a_power_of_the_probabilities(board_policy: Policy) -> None:
    card, weights = board_policy
    rows = torch.rand(32, 84, generator=torch.Generator().manual_seed(1))
    mask = torch.ones(32, 7, dtype=torch.bool)
    mask[:, 4:] = False
    policies = [
        frozen_policy(card, one)
        for one in (weights, tempered(weights, card.network, temperature=TEMPERATURE))
    ]
    before, after = (policy.logits(rows, mask).softmax(dim=1) for policy in policies)
    powers = before ** (1.0 / TEMPERATURE)
    assert torch.allclose(after, powers / powers.sum(dim=1, keepdim=True), atol=1e-6)
    values = [policy.network(rows)[1] for policy in policies]
    assert torch.equal(*values)
    # The given weights must not change.
    assert sha256_bytes(serialize(weights)) == card.weights_digest


def test_numbers_get_the_variance_of_the_power(board_policy: Policy) -> None:
    box = gymnasium.spaces.Box(low=-1.0, high=1.0, shape=(3,), dtype=np.float32)
    card, weights = make_policy(box, actions=box, mask=None)
    weights["log_std"] = torch.tensor([0.1, -0.3, 0.0])
    after = tempered(weights, card.network, temperature=4.0)
    # Dividing log p by 4 gives a normal distribution with twice the standard deviation.
    assert torch.allclose(after["log_std"].exp(), 2.0 * weights["log_std"].exp())
    assert torch.equal(after["head.weight"], weights["head.weight"])
    outputs = at_temperature({"mean": np.ones(3), "log_std": weights["log_std"].numpy()}, 4.0)
    assert outputs["log_std"] == pytest.approx(after["log_std"].numpy())
    assert (outputs["mean"] == 1.0).all()


def test_an_illegal_choice_stays_at_the_minimum() -> None:
    least = np.finfo(np.float32).min
    logits = np.array([[1.0, least, -200.0]], dtype=np.float32)
    for temperature in (0.01, 50.0):
        found = at_temperature({"logits": logits}, temperature)["logits"]
        assert found.dtype == np.float32
        assert found[0].tolist() == pytest.approx(
            [1.0 / temperature, float(least), -200.0 / temperature]
        )


@pytest.fixture(scope="module")
def with_levels(board_policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Written[Card]:
    """A weaker member that always plays column 5, at two temperatures, and the champion."""
    card, weights = board_policy
    weak = {name: tensor.clone() for name, tensor in weights.items()}
    weak["head.weight"].zero_()
    weak["head.bias"].zero_()[5] = math.log(6.0)
    other: dict[str, Any] = {"player": "player/p001@000000000007", "graph": "levels/01/policy.onnx"}
    other |= {"weights_digest": sha256_bytes(serialize(weak)), "agent_steps": 7}
    levels = (
        level(1, card, **other, temperature=2.0),
        level(2, card, **other, score_below=0.7, matches_below=400),
        level(3, card, score_below=0.75, matches_below=800, rating_high=None),
    )
    directory = tmp_path_factory.mktemp("levels") / "champion"
    return write_export(
        directory,
        card=structs.replace(card, levels=levels),
        weights=weights,
        levels={"levels/01/policy.onnx": weak},
    )


def test_levels_share_their_weights(with_levels: Written[Card]) -> None:
    files = {
        path.relative_to(with_levels.directory).as_posix()
        for path in with_levels.directory.rglob("*")
        if path.is_file()
    }
    assert files - {"card.json"} == set(with_levels.card.files)
    assert {name for name in files if name.startswith("levels")} == {
        "levels/01/policy.onnx",
        "levels/01/policy.safetensors",
    }
    assert read_card(with_levels.directory) == with_levels.card
    text = (with_levels.directory / "card.md").read_text(encoding="utf-8")
    assert "| 1 | player/p001@000000000007 | 2 | 100 (95%: 50 to 150) |  |" in text
    assert "| 2 | player/p001@000000000007 | 1 | 200 (95%: 100 to 300) | 0.700 in 400 |" in text


def test_a_level_plays_its_graph_at_its_temperature(with_levels: Written[Card]) -> None:
    # The odds are exp(log 6 / T) to 1 for each of the six other actions.
    for number, weight in ((1, math.sqrt(6.0)), (2, 6.0)):
        champion = Champion(with_levels.directory, level=number, seed=1)
        shares = champion.probabilities(BOARD)
        assert shares[5] == pytest.approx(weight / (weight + 6.0), abs=1e-6)
        # A level always samples.
        chosen = [champion.act(BOARD) for _ in range(2000)]
        assert chosen.count(5) / 2000 == pytest.approx(shares[5], abs=0.04)
    top, own = Champion(with_levels.directory, level=3), Champion(with_levels.directory)
    assert (top.probabilities(BOARD) == own.probabilities(BOARD)).all()
    assert len({top.act(BOARD) for _ in range(100)}) > 1
    assert len({own.act(BOARD) for _ in range(100)}) == 1
    network, weights = load_export_weights(
        with_levels.directory, weights=with_levels.card.level(1).weights
    )
    assert weights["head.bias"][5] == pytest.approx(math.log(6.0))
    assert network == with_levels.card.network
    # The actor of league matches samples, too.
    actor = ExportedActor(with_levels.directory, graph="levels/01/policy.onnx", temperature=2.0)
    inputs = ActorInput(
        observation=torch.zeros(4000, 84), action_mask=torch.ones(4000, 7, dtype=torch.bool)
    )
    drawn = actor.act(inputs, agent="", generator=torch.Generator().manual_seed(1)).action
    expected = Champion(with_levels.directory, level=1).probabilities(BOARD)
    assert np.bincount(drawn, minlength=7) / 4000 == pytest.approx(expected, abs=0.03)


def test_a_level_that_is_not_there_is_refused_with_those_that_are_or_how_to_get_some(
    with_levels: Written[Card], board_export: Written[Card]
) -> None:
    for number in (0, 4, -1):
        with pytest.raises(NoLevel, match=f"no level {number} in this export: it has 1 to 3"):
            Champion(with_levels.directory, level=number)
        with pytest.raises(ConfigError, match=f"has no level {number}; its export has 1 to 3"):
            with_levels.card.level(number)
    with pytest.raises(NoLevel, match="arena export --levels N writes some"):
        Champion(board_export.directory, level=1)
    with pytest.raises(ConfigError, match="none: arena export --levels N"):
        board_export.card.level(1)
    with pytest.raises(ValueError, match=r"0\.000001 or more and finite, got 0"):
        Champion(board_export.directory, temperature=0.0)


def test_a_card_from_elsewhere_is_checked(with_levels: Written[Card]) -> None:
    card = json.loads((with_levels.directory / "card.json").read_text())
    levels = card["levels"]
    changes = (("graph", "../policy.onnx"), ("graph", "levels/1/policy.onnx"), ("temperature", 0.0))
    for name, value in changes:
        with pytest.raises(DecodeError, match=name):
            from_json(json.dumps(levels[0] | {name: value}).encode(), CardLevel)
    with pytest.raises(DecodeError, match="numbered from 1"):
        from_json(json.dumps(card | {"levels": levels[1:]}).encode(), Card)


def test_the_script_plays_at_a_level(
    with_levels: Written[Card], capsys: pytest.CaptureFixture[str]
) -> None:
    program = ["--directory", str(with_levels.directory), "--games", "2"]
    main([*program, "--level", "1"])
    assert '"matches": 2' in capsys.readouterr().out
    for arguments, says in (
        (("--level", "9"), "no level 9"),
        (("--uci",), "PettingZoo's chess; this export plays classic/connect_four-v3"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main([*program, *arguments])
        assert says in capsys.readouterr().err
