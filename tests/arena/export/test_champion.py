from __future__ import annotations

import ast
import importlib
import inspect
import json
import math
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arena.config import MarginOutcome
from arena.core import ActorInput
from arena.envs.batched.scoring import score_against
from arena.envs.outcome import make_outcome
from arena.export.card import Card
from arena.export.champion import Champion, main, play_game, results_of
from arena.export.write import SPACES_MARK, Written
from tests.arena.export.conftest import boards
from tests.layouts import frozen_policy
from tests.support import run_process

pytestmark = pytest.mark.xdist_group("exports")

Policy = tuple[Card, dict[str, torch.Tensor]]

ALONE = """
import importlib.abc, json, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        assert name.split(".")[0] not in {"arena", "populations", "torch", "onnx", "pettingzoo",
                                          "gymnasium", "pydantic", "safetensors"}, name

sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[1])
import numpy
from champion import Champion

champion = Champion(sys.argv[1])
data = numpy.load(sys.argv[2])
print(json.dumps([champion.act(row, mask) for row, mask in zip(data["rows"], data["masks"])]))
"""


def test_it_stands_alone_and_plays_the_policys_likeliest_actions(
    board_policy: Policy, board_export: Written[Card], tmp_path: Path
) -> None:
    rows, masks = boards(64, seed=3)
    np.savez(tmp_path / "boards.npz", rows=rows, masks=masks)
    copy = tmp_path / "elsewhere"
    shutil.copytree(board_export.directory, copy)
    done = run_process(
        [sys.executable, "-I", "-c", ALONE, str(copy), str(tmp_path / "boards.npz")],
        cwd=tmp_path,
        timeout_s=60,
        check=True,
    )
    card, weights = board_policy
    policy = frozen_policy(card, weights, greedy=True)
    expected = policy.act(
        ActorInput(
            observation=torch.from_numpy(rows.reshape(64, 84)).float(),
            action_mask=torch.from_numpy(masks).bool(),
        ),
        agent="player_0",
        generator=torch.Generator(),
    ).action
    assert json.loads(done.stdout) == expected.tolist()


def test_a_game_of_ones_own_is_found_where_the_command_is_typed(
    board_export: Written[Card],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--env", "game_of_mine:env", "--games", "1"]
    (tmp_path / "empty").mkdir()
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path / "empty")
        patch.setattr(sys, "path", [*sys.path])
        with pytest.raises(SystemExit, match="2"):
            main(["--directory", str(board_export.directory), *arguments])
    said = capsys.readouterr().err
    assert "game_of_mine:env cannot be made: No module named 'game_of_mine'" in said
    (tmp_path / "game_of_mine.py").write_text(
        "from pettingzoo.classic.connect_four_v3 import env\n", encoding="utf-8"
    )
    program = [sys.executable, str(board_export.directory / "champion.py"), *arguments]
    done = run_process(program, cwd=tmp_path, timeout_s=60, check=True)
    seats = next(part for part in json.loads(done.stdout).values() if isinstance(part, list))
    assert [seat["matches"] for seat in seats] == [1, 1]


def test_the_file_is_the_module_with_that_of_spaces_between_two_marks(
    board_export: Written[Card],
) -> None:
    written = (board_export.directory / "champion.py").read_text(encoding="utf-8")
    module, spaces = (
        inspect.getsource(importlib.import_module(name))
        for name in ("arena.export.champion", "arena.spaces")
    )
    before, inside, after = written.split(SPACES_MARK)
    assert [before, after] == module.split(SPACES_MARK)[::2]
    assert spaces.endswith(inside)
    # Everything but the docstring and the `__future__` import is compared.
    left_out = ast.parse(spaces.removesuffix(inside)).body
    assert [type(one) for one in left_out] == [ast.Expr, ast.ImportFrom]
    assert re.findall(r"^ *(?:from|import) (?:arena|populations)\b.*", written, re.MULTILINE) == []


def test_it_takes_pettingzoos_dictionary(board_export: Written[Card]) -> None:
    champion = Champion(board_export.directory)
    (row,), (mask,) = boards(1, seed=4)
    together = champion.act({"observation": row, "action_mask": mask}, agent="player_1")
    assert together == champion.act(row, mask)
    only = np.eye(7, dtype=np.int8)[5]
    # An explicit mask overrides the mask in the dictionary.
    assert champion.act({"observation": row, "action_mask": mask}, only) == 5


@pytest.mark.slow
def test_samples_follow_the_policy_and_never_break_the_mask(
    board_policy: Policy, board_export: Written[Card]
) -> None:
    champion = Champion(board_export.directory)
    (row,), _ = boards(1, seed=5)
    mask = np.array([1, 0, 1, 1, 0, 1, 1], dtype=np.int8)
    champion.reset(seed=6)
    num_draws = 4000
    draws = [champion.act(row, mask, sample=True) for _ in range(num_draws)]
    card, weights = board_policy
    policy = frozen_policy(card, weights)
    flat = torch.from_numpy(row.reshape(1, 84)).float()
    probabilities = policy.logits(flat, torch.from_numpy(mask[None]).bool()).softmax(dim=1)[0]
    for action, probability in enumerate(probabilities.tolist()):
        deviation = math.sqrt(num_draws * probability * (1 - probability))
        assert abs(draws.count(action) - num_draws * probability) <= 5 * deviation


def test_a_seed_fixes_the_stream(board_export: Written[Card]) -> None:
    champion, other = Champion(board_export.directory), Champion(board_export.directory)
    rows, masks = boards(30, seed=7)

    def stream(who: Champion, seed: int) -> list[int]:
        first = who.act(rows[0], masks[0], sample=True, seed=seed)
        pairs = zip(rows[1:], masks[1:], strict=True)
        return [first, *(who.act(row, mask, sample=True) for row, mask in pairs)]

    assert stream(champion, 1) == stream(other, 1) == stream(champion, 1)
    assert stream(champion, 1) != stream(champion, 2)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"observation": np.zeros((6, 7))}, r"shape \(6, 7, 2\), got \(6, 7\)"),
        ({"observation": np.full((6, 7, 2), np.nan)}, "finite"),
        ({"action_mask": None}, "action_mask is needed"),
        ({"action_mask": np.ones(6)}, r"shape \(7,\), got \(6,\)"),
        ({"observation": np.zeros((3, 6, 7, 2))}, r"shape \(3, 7\), got \(7,\)"),
        ({"observation": np.zeros((0, 6, 7, 2))}, r"got \(0, 6, 7, 2\)"),
        ({"observation": {}}, "must be numbers, got dict"),
        ({"action_mask": np.zeros(7)}, "must have a legal action"),
        ({"agent": "player_2"}, r"must be one of .*player_1.*, got 'player_2'"),
    ],
)
def test_what_does_not_fit_the_card_is_refused(
    board_export: Written[Card], arguments: dict[str, Any], complaint: str
) -> None:
    valid: dict[str, Any] = {"observation": np.zeros((6, 7, 2)), "action_mask": np.ones(7)}
    with pytest.raises(ValueError, match=complaint):
        Champion(board_export.directory).act(**(valid | arguments))


def test_a_mask_where_there_are_none_is_refused(number_export: Written[Card]) -> None:
    with pytest.raises(ValueError, match="no action masks"):
        Champion(number_export.directory).act(3, np.ones(4))


def test_another_graph_than_the_cards_is_refused(
    board_export: Written[Card], tmp_path: Path
) -> None:
    copy = tmp_path / "champion"
    shutil.copytree(board_export.directory, copy)
    graph = bytearray((copy / "policy.onnx").read_bytes())
    graph[len(graph) // 2] ^= 1
    (copy / "policy.onnx").write_bytes(graph)
    with pytest.raises(ValueError, match="not the file of"):
        Champion(copy)


def test_as_a_script_it_plays_connect_four_to_its_end(
    board_export: Written[Card], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--directory", str(board_export.directory), "--games", "3", "--sample"]
    main(arguments)
    first = capsys.readouterr().out
    record = json.loads(first)
    assert record["player"] == "player/p003"
    assert [seat["seat"] for seat in record["seats"]] == ["player_0", "player_1"]
    for seat in record["seats"]:
        assert seat["wins"] + seat["draws"] + seat["losses"] == seat["matches"] == 3
        # Connect Four pays 1, 0 or -1.
        assert seat["mean_return"] == pytest.approx((seat["wins"] - seat["losses"]) / 3)
    main(arguments)
    assert capsys.readouterr().out == first


class CountingGame:
    """Two agents choose a number in turn, three times; the sum of one's own numbers is paid."""

    def __init__(self) -> None:
        self.possible_agents: list[Any] = ["player_0", "player_1"]
        self.seeds: list[int | None] = []
        self.steps: list[tuple[str, int | None]] = []

    def reset(self, seed: int | None = None) -> None:
        self.seeds.append(seed)
        self.steps = []

    def agent_iter(self) -> Any:
        for turn in range(8):
            self.agent, self.is_over = self.possible_agents[turn % 2], turn >= 6
            yield self.agent

    def last(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        own = [action for agent, action in self.steps if agent == self.agent and action is not None]
        reward = float(own[-1]) if own else 0.0
        return 3, reward, self.is_over, False, {}

    def step(self, action: int | None) -> None:
        self.steps.append((self.agent, action))

    def close(self) -> None:
        self.possible_agents = []


def test_every_reward_is_counted_and_random_moves_are_legal(number_export: Written[Card]) -> None:
    champion, env = Champion(number_export.directory), CountingGame()
    returns = play_game(champion, env, agents=["player_0"], seed=9, rng=np.random.default_rng(0))
    mine = champion.act(3)
    others = [action for agent, action in env.steps if agent == "player_1" and action is not None]
    assert returns == {"player_0": 3.0 * mine, "player_1": float(sum(others))}
    assert all(10 <= action <= 13 for action in others)
    assert env.seeds == [9]
    assert env.steps[-2:] == [("player_0", None), ("player_1", None)]


def test_agents_that_are_numbers_are_those_of_the_card(number_export: Written[Card]) -> None:
    champion, env = Champion(number_export.directory), CountingGame()
    text = play_game(champion, env, agents=["player_0"], seed=9, rng=np.random.default_rng(0))
    env.possible_agents = [0, 1]
    champion.card["environment"]["agents"] = champion.agents[:] = ["0", "1"]
    specs = champion.card["environment"]["agent_specs"]
    for name, number in (("player_0", "0"), ("player_1", "1")):
        specs[number] = specs[name]
    numbers = play_game(champion, env, agents=["0"], seed=9, rng=np.random.default_rng(0))
    assert numbers == {"0": text["player_0"], "1": text["player_1"]}


SIDES = {"hunters": ["adversary_0", "adversary_1"], "prey": ["agent_0"]}
RETURNS = {"adversary_0": 30.0, "adversary_1": 10.0, "agent_0": -20.0}


@pytest.mark.parametrize(
    ("outcome", "agents", "expected"),
    [
        ("return", ["adversary_0", "adversary_1"], 1.0),
        ("return", ["agent_0"], 0.0),
        ({"threshold": 20.0, "side": "hunters"}, ["adversary_0"], 1.0),
        ({"threshold": 20.0, "side": "hunters"}, ["agent_0"], 0.0),
        ({"threshold": 20.5, "side": "hunters"}, ["adversary_0"], 0.0),
        ({"threshold": 20.5, "side": "hunters"}, ["agent_0"], 1.0),
    ],
)
def test_games_are_scored_by_the_cards_rule(
    outcome: object, agents: list[str], expected: float
) -> None:
    card = {"environment": {"sides": SIDES, "outcome": outcome}}
    assert results_of(card, RETURNS, agents) == [expected]


def test_equal_returns_are_a_draw_and_cooperation_has_no_score() -> None:
    card: dict[str, Any] = {"environment": {"sides": SIDES, "outcome": "return"}}
    assert results_of(card, dict.fromkeys(RETURNS, 1.0), ["agent_0"]) == [0.5]
    rounded = {"adversary_0": 0.1 + 0.2, "adversary_1": 0.3, "agent_0": 0.3 + 1e-8}
    assert results_of(card, rounded, ["agent_0"]) == [0.5]
    card["environment"]["sides"] = {"team": list(RETURNS)}
    assert results_of(card, RETURNS, list(RETURNS)) == []


def test_with_more_sides_each_other_one_is_met_as_in_arena() -> None:
    agents = ("a", "b", "c", "d")
    sides = {agent: (agent,) for agent in agents}
    card: dict[str, Any] = {"environment": {"sides": sides, "outcome": "return"}}
    # The return is the third of four; the mean of all others would be far lower.
    returns = {"a": 1.0, "b": 3.0, "c": 2.0, "d": -90.0}
    arena = make_outcome("return", sides=sides, agents=agents, launch_directory="")(returns, {})
    assert results_of(card, returns, ["a"]) == [0.0, 0.0, 1.0]
    for agent, score in zip(agents, arena, strict=True):
        results = results_of(card, returns, [agent])
        assert sum(results) == pytest.approx(score)


@pytest.mark.parametrize("returns", [(3.0, -3.0), (13.0, -13.0), (0.0, 0.0), (5.0, 4.0), (9, -30)])
def test_a_margin_is_that_of_arena(returns: tuple[float, float]) -> None:
    sides = {"a": ("a",), "b": ("b",)}
    card: dict[str, Any] = {"environment": {"sides": sides, "outcome": {"margin": 13.0}}}
    received = dict(zip(sides, returns, strict=True))
    make = make_outcome(
        MarginOutcome(margin=13.0), sides=sides, agents=("a", "b"), launch_directory=""
    )
    mine, theirs = (torch.tensor([value]) for value in make(received, {}))
    expected = float(score_against(mine, theirs))
    assert results_of(card, received, ["a"]) == pytest.approx([expected], abs=1e-6)
    assert results_of(card, received, ["b"]) == pytest.approx([1.0 - expected], abs=1e-6)
