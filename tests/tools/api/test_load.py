"""Players from Python: each kind against the policy, the graph or the bot that it is."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
import torch

import arena
from arena.config import NetworkConfig
from arena.errors import CheckpointCorrupt
from arena.export.card import CardMember, MixtureCard
from arena.export.write import write_export, write_mixture
from arena.networks.actor_critic import ActorCritic
from tests.arena.export.conftest import boards, make_policy
from tests.support import run_process
from tests.tools.conftest import NETWORK, RunBuilder

pytestmark = pytest.mark.xdist_group("exports")

Array = npt.NDArray[Any]
BOARD = "classic/connect_four-v3"
BOX = gymnasium.spaces.Box(low=0, high=1, shape=(6, 7, 2), dtype=np.int8)


@pytest.fixture(scope="module")
def random_bot() -> arena.Player:
    return arena.load("bot:random", environment=BOARD)


def network_of(player: arena.Player, *, agent: str | None = None) -> ActorCritic:
    module = player.module(agent=agent)
    assert isinstance(module, ActorCritic)
    return module


def assert_is_its_network(player: arena.Player, rows: Array, masks: Array) -> None:
    flat = torch.from_numpy(rows.reshape(len(rows), -1)).float()
    with torch.inference_mode():
        logits = network_of(player).logits(flat, torch.from_numpy(masks).bool())
        values = network_of(player).value(flat)
    assert np.array_equal(player.act(rows, masks), logits.argmax(dim=1))
    found = player.probabilities(rows, masks)
    np.testing.assert_allclose(found, logits.softmax(dim=1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(player.value(rows), values, rtol=1e-4, atol=1e-6)


def test_a_policy_plays_by_its_latest_weights(board_run: Path) -> None:
    player = arena.load(f"{board_run}:player/p000")
    rows, masks = boards(40)
    assert_is_its_network(player, rows, masks)
    assert player.agents == ("player_0", "player_1")
    one = player.act({"observation": rows[0], "action_mask": masks[0]}, agent="player_1")
    assert isinstance(one, int)
    assert one == player.act(rows[:1], masks[:1])[0]
    # The champion is p000, too; the ghost is older, and p001 is another policy.
    expected = player.probabilities(rows, masks)
    assert np.array_equal(arena.load(board_run).probabilities(rows, masks), expected)
    for other in ("player/p000@60000", "player/p001"):
        found = arena.load(f"{board_run}:{other}").probabilities(rows, masks)
        assert not np.allclose(found, expected)
    ghost = next((board_run / "populations/player/p000/ghosts").iterdir())
    found = arena.load(ghost).probabilities(rows, masks)
    by_name = arena.load(f"{board_run}:player/p000@60000").probabilities(rows, masks)
    assert np.array_equal(found, by_name)


def test_a_module_is_a_copy(board_run: Path) -> None:
    player = arena.load(board_run)
    rows, masks = boards(5)
    before = player.probabilities(rows, masks)
    with torch.no_grad():
        network_of(player).head.weight.zero_()
    assert np.array_equal(player.probabilities(rows, masks), before)
    assert network_of(player).head.weight.abs().max() > 0


def test_of_several_populations_the_agent_says_which(tag_run: Path) -> None:
    player = arena.load(tag_run)
    assert set(player.agents) == {"adversary_0", "adversary_1", "adversary_2", "agent_0"}
    rng = np.random.default_rng(2)
    for agent, size in (("adversary_1", 16), ("agent_0", 14)):
        rows = rng.normal(size=(9, size)).astype(np.float32)
        with torch.inference_mode():
            logits = network_of(player, agent=agent).logits(torch.from_numpy(rows))
        assert np.array_equal(player.act(rows, agent=agent), logits.argmax(dim=1))
    with pytest.raises(ValueError, match=r"agent is needed: .* several populations"):
        player.act(rows)
    with pytest.raises(ValueError, match=r"agent must be one of .*, got 'agent_7'"):
        player.act(rows, agent="agent_7")
    with pytest.raises(ValueError, match=r"observation must have shape \(16,\), got \(9, 14\)"):
        player.act(rows, agent="adversary_0")


def test_forces_are_within_their_bounds_and_have_no_probabilities(steering_run: Path) -> None:
    player = arena.load(steering_run, seed=3)
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(30, 12)).astype(np.float32)
    ids = np.tile(np.eye(2, dtype=np.float32)[1], (30, 1))
    with torch.inference_mode():
        network = network_of(player)
        flat = torch.from_numpy(np.concatenate([rows, ids], axis=1))
        parameters = network.policy(network.normalize_observation(flat)).numpy()
    # Forces are in [0, 1], squashed: 1/2 + tanh(u) / 2.
    expected = 0.5 + 0.5 * np.tanh(parameters[:, :5].astype(np.float64))
    found = player.act(rows, agent="agent_1")
    assert (found.dtype, found.shape) == (np.float32, (30, 5))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    sampled = player.act(rows, agent="agent_1", sample=True)
    assert ((sampled >= 0.0) & (sampled <= 1.0)).all()
    assert not np.allclose(sampled, found)
    with pytest.raises(ValueError, match="must have choices"):
        player.probabilities(rows, agent="agent_1")
    with pytest.raises(ValueError, match="agent is needed"):
        player.act(rows)


@pytest.fixture(scope="module")
def nested_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dictionaries as observations, with masks beside; actions of three parts; a memory."""
    run = RunBuilder(
        tmp_path_factory.mktemp("runs") / "nested",
        {
            "environment": {"id": "tests.assets.payloads:AtOnce", "kwargs": {"form": "dict"}},
            "populations": {
                "all": {
                    "agents": ["*"],
                    "size": 1,
                    "network": {**NETWORK, "core": "gru", "core_size": 8},
                }
            },
        },
    )
    latest = run.checkpoint("all/p000", agent_steps=1_000, seed=51)
    run.policy("all/p000", index=0, latest=latest)
    return run.write()


@pytest.mark.slow
def test_a_recurrent_policy_of_nested_spaces_remembers(nested_run: Path) -> None:
    player = arena.load(f"{nested_run}:all/p000")
    rng = np.random.default_rng(4)
    network = network_of(player)
    state = torch.zeros(6, 8)
    mask = np.ones((6, 7), dtype=np.int8)
    # Categories are in the order of keys: flags (two choices each), pick.
    mask[:, 0] = 0
    for _ in range(3):
        who, mark = rng.integers(4, size=6), rng.uniform(0, 50, (6, 2)).astype(np.float32)
        # A row has first mark, then who as a one-hot.
        flat = np.concatenate([mark, np.eye(4, dtype=np.float32)[who]], axis=1)
        with torch.inference_mode():
            normalized = network.normalize_observation(torch.from_numpy(flat))
            parameters, value, state = network.step(normalized, state)
        observation = {"who": who, "mark": mark, "action_mask": mask}
        found = player.value({"who": who, "mark": mark}, agent="b")
        expected = network.return_normalizer.denormalize(value)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
        action = player.act(observation, agent="b")
        assert {key: part.shape for key, part in action.items()} == {
            "flags": (6, 2),
            "move": (6, 2),
            "pick": (6,),
        }
        assert (action["flags"][:, 0] == 1).all()
        flags, pick = parameters[:, 2:4].argmax(dim=1), parameters[:, 4:7].argmax(dim=1)
        assert np.array_equal(action["flags"][:, 1], flags)
        assert np.array_equal(action["pick"], pick)
        np.testing.assert_allclose(action["move"], parameters[:, 7:9].tanh(), rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match=r"observation\.mark is needed"):
        player.act({"who": 1, "action_mask": mask[0]}, agent="b")
    player.reset()
    single = {"who": 1, "mark": np.zeros(2), "action_mask": {"flags": None, "pick": [0, 0, 1]}}
    assert player.act(single, agent="b")["pick"] == 2


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    card, weights = make_policy(BOX, actions=gymnasium.spaces.Discrete(7), mask="observation")
    directory = tmp_path_factory.mktemp("exports") / "champion"
    write_export(directory, card=card, weights=weights)
    return directory


ALONE = """
import importlib.abc, json, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        assert name.split(".")[0] not in {"torch", "onnx", "pettingzoo", "gymnasium", "pydantic",
                                          "safetensors", "zmq", "optuna"}, name

sys.meta_path.insert(0, Refuse())
import numpy, arena
data = numpy.load(sys.argv[2])
player = arena.load(sys.argv[1])
print(json.dumps([player.act(data["rows"], data["masks"]).tolist(),
                  player.value(data["rows"]).tolist()]))
"""


@pytest.mark.slow
def test_an_export_needs_onnxruntime_and_numpy_alone(exported: Path, tmp_path: Path) -> None:
    rows, masks = boards(20)
    np.savez(tmp_path / "boards.npz", rows=rows, masks=masks)
    done = run_process(
        [sys.executable, "-c", ALONE, str(exported), str(tmp_path / "boards.npz")], timeout_s=60
    )
    assert done.returncode == 0, done.stderr
    player = arena.load(exported)
    assert json.loads(done.stdout) == [
        player.act(rows, masks).tolist(),
        np.asarray(player.value(rows)).tolist(),
    ]
    assert_is_its_network(player, rows, masks)


@pytest.mark.slow
def test_it_plays_as_champion_py_and_the_policy_do_on_10000_observations(exported: Path) -> None:
    """Equal actions; probabilities equal to champion.py's to the bit, to the policy's to 1e-5."""
    spec = importlib.util.spec_from_file_location("champion_of_export", exported / "champion.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module in sys.modules.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        champion = module.Champion(exported)
        player = arena.load(exported)
        rows, masks = boards(10_000, seed=5)
        found, values = player.probabilities(rows, masks), player.value(rows)
        actions = player.act(rows, masks)
        assert np.array_equal(found, champion.probabilities(rows, masks))
        one_by_one = [champion.act(row, mask) for row, mask in zip(rows, masks, strict=True)]
        assert actions.tolist() == one_by_one
        drawn = player.act(rows, masks, sample=True, seed=6)
        assert drawn.tolist() == champion.act(rows, masks, sample=True, seed=6).tolist()
    finally:
        del sys.modules[spec.name]
    flat, legal = torch.from_numpy(rows.reshape(10_000, 84)).float(), torch.from_numpy(masks).bool()
    with torch.inference_mode():
        logits, expected = network_of(player).logits(flat, legal), network_of(player).value(flat)
    np.testing.assert_allclose(found, logits.softmax(dim=1), atol=1e-5)
    np.testing.assert_allclose(values, expected, atol=1e-5)
    best = logits.topk(2, dim=1).values
    # Choices that are equal up to rounding may be swapped.
    is_clear = (best[:, 0] - best[:, 1] > 1e-4).numpy()
    assert is_clear.mean() > 0.99
    assert np.array_equal(actions[is_clear], logits.argmax(dim=1).numpy()[is_clear])


@pytest.mark.slow
def test_a_mixture_draws_a_member_at_each_reset(tmp_path: Path) -> None:
    members = []
    for action in (1, 4):
        card, weights = make_policy(BOX, actions=gymnasium.spaces.Discrete(7), mask="observation")
        weights["head.weight"].zero_()
        weights["head.bias"].zero_()[action] = 100.0
        members.append((card, weights))
    first = members[0][0]
    shared = {name: getattr(first, name) for name in MixtureCard.__struct_fields__ if name in (
        *("created", "run", "population", "agents", "seats", "environment", "observation"),
        *("action", "mask", "record", "versions"),
    )}  # fmt: skip
    write_mixture(
        tmp_path / "mixture",
        card=MixtureCard(
            **shared,
            player="player/mixture",
            members=tuple(
                CardMember(
                    directory=f"members/{index:02d}",
                    player=card.player,
                    probability=0.5,
                    agent_steps=1,
                    generation=0,
                    weights_digest=card.weights_digest,
                    rating=card.rating,
                )
                for index, (card, _) in enumerate(members)
            ),
            num_players=2,
            worst_score=0.5,
            cyclicity=None,
        ),
        members=members,
    )
    player = arena.load(tmp_path / "mixture", seed=1)
    rows, _ = boards(3)
    masks = np.ones((3, 7), dtype=np.int8)
    seen = set()
    for _ in range(20):
        player.reset()
        (action,) = set(player.act(rows, masks).tolist())
        seen.add(action)
        assert player.probabilities(rows, masks)[:, action] == pytest.approx(1.0)
        bias = network_of(player).head.bias
        assert int(bias.argmax()) == action
    assert seen == {1, 4}


@pytest.mark.slow
def test_without_a_value_function_a_sentence_says_why(
    random_bot: arena.Player, tmp_path: Path
) -> None:
    network = NetworkConfig(hidden_sizes=(8,), critic="joint")
    card, weights = make_policy(
        BOX, actions=gymnasium.spaces.Discrete(7), mask="observation", network=network
    )
    write_export(tmp_path / "joint", card=card, weights=weights)
    rows, _ = boards(2)
    with pytest.raises(arena.NoValue, match="its critic is centralized"):
        arena.load(tmp_path / "joint").value(rows)
    with pytest.raises(arena.NoValue, match="bot:random has no value function"):
        random_bot.value(rows)


def test_random_moves_are_uniform_over_the_legal_ones(random_bot: arena.Player) -> None:
    player = random_bot
    player.reset(seed=2)
    rows = np.zeros((4000, 6, 7, 2), dtype=np.int8)
    mask = np.array([1, 0, 1, 1, 0, 0, 1], dtype=np.int8)
    found = player.act(rows, np.tile(mask, (4000, 1)))
    # Each of four legal moves is expected 1000 times, with a deviation of sqrt(4000 * 3 / 16) = 27.
    counts = np.bincount(found, minlength=7)
    assert (counts[mask == 0] == 0).all()
    assert (np.abs(counts[mask == 1] - 1000) < 140).all()
    assert player.probabilities(rows[0], mask).tolist() == (mask / 4).tolist()
    assert player.act(rows[0], mask, seed=3) == player.act(rows[0], mask, seed=3)
    with pytest.raises(arena.ConfigError, match="must be a policy to have a module"):
        player.module()


BOT = """
import numpy as np

class Counting:
    '''Plays the column of its own move's number in each game.'''

    def __init__(self, first=0):
        self.first, self.moves = first, {}

    def reset(self, game, *, seat, agents, seed):
        self.moves[game] = self.first

    def act(self, observation, action_mask, *, agent, rng, games):
        assert set(observation) == {"observation", "action_mask"}
        assert observation["observation"].dtype == np.int8
        chosen = [self.moves[game] for game in games]
        for game in games:
            self.moves[game] += 1
        return np.array(chosen)
"""


def test_a_users_bot_plays_each_row_as_a_game(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "counting_player.py").write_text(BOT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    player = arena.load("bot:counting_player:Counting( first = 2 )", environment=BOARD)
    assert player.name == "bot:counting_player:Counting(first=2)"
    rows, masks = np.zeros((3, 6, 7, 2), dtype=np.int8), np.ones((3, 7), dtype=np.int8)
    assert player.act(rows, masks).tolist() == [2, 2, 2]
    assert player.act(rows[:1], masks[:1]).tolist() == [3]
    assert player.act(rows, masks).tolist() == [4, 3, 3]
    player.reset()
    assert player.act(rows[0], masks[0]) == 2
    masks[0, 3] = 0
    with pytest.raises(arena.ConfigError, match="chose 3, which is not legal"):
        player.act(rows[0], masks[0])
    with pytest.raises(ValueError, match="bots tell no chances"):
        player.probabilities(rows, masks)


@pytest.mark.parametrize(
    ("player", "more", "complaint"),
    [
        ("nowhere", {}, "there is no player 'nowhere'"),
        ("{run}:player/p009", {}, "has no policy 'player/p009'"),
        ("{run}:player/p002", {}, "has no checkpoint yet"),
        ("bot:random", {}, "environment=ID must say what"),
        ("bot:random", {"environment": "classic/nothing-v1"}, "classic/nothing-v1"),
        ("bot:Lefty", {"environment": BOARD}, "a bot is"),
        ("{run}", {"environment": BOARD}, "is for bots"),
    ],
)
def test_what_is_no_player_is_named(
    player: str, more: dict[str, Any], complaint: str, board_run: Path
) -> None:
    with pytest.raises(arena.ConfigError, match=complaint):
        arena.load(player.format(run=board_run), **more)


def test_a_damaged_export_is_named(tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text('{"schema": 1}')
    with pytest.raises(CheckpointCorrupt, match="must be a whole export"):
        arena.load(tmp_path)
