"""OpenSpiel's games in the batched view, against a plain loop over pyspiel itself."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.environment_spec import EnvironmentRequest
from arena.envs.chance import episode_seed, uniform
from arena.envs.describe import environment_facts
from arena.envs.inspect import inspect_environment
from arena.envs.openspiel.game import (
    OpenSpielGame,
    canonical_game_id,
    known_games,
    load_game,
    openspiel_facts,
)
from arena.envs.openspiel.stepper import OpenSpielStepper, chance_outcome
from arena.errors import ConfigError, EnvironmentFault, EnvironmentUnavailable
from tests.arena.envs.conftest import Decision, Episode, Make, assert_same, play_batched

pyspiel: Any = pytest.importorskip("pyspiel")

GAMES: list[tuple[str, dict[str, object], int]] = [
    ("openspiel:kuhn_poker", {}, 60),
    ("openspiel:kuhn_poker", {"players": 3}, 60),
    ("openspiel:leduc_poker(players=3)", {}, 60),
    ("openspiel:liars_dice(dice_sides=3)", {}, 60),
    ("openspiel:tic_tac_toe", {}, 40),
    ("openspiel:leduc_poker", {"observation": "observation"}, 40),
    ("openspiel:breakthrough(rows=4,columns=4)", {}, 60),
    ("openspiel:hex(board_size=3)", {"observation": "observation"}, 40),
    # In these games all players decide at once: in one repeated node, with chance in between, with
    # three players who choose from the same range, and with returns that do not sum to zero.
    ("openspiel:matrix_rps", {}, 20),
    ("openspiel:oshi_zumo", {"coins": 6, "size": 1}, 40),
    ("openspiel:goofspiel", {"num_cards": 4, "imp_info": True}, 40),
    ("openspiel:goofspiel", {"num_cards": 4, "players": 3, "observation": "observation"}, 40),
    ("openspiel:matrix_pd", {}, 20),
    ("openspiel:laser_tag(horizon=20)", {}, 90),
    # The game has chance nodes between decisions with unequal probabilities, doubles first.
    ("openspiel:backgammon", {}, 900),
    # The game has intermediate rewards, one player and thousands of chance outcomes.
    ("openspiel:2048", {"max_tile": 32}, 120),
    # The game has intermediate rewards and four players without an information state.
    ("openspiel:hanabi", {"players": 4}, 120),
    (
        "openspiel:turn_based_simultaneous_game(game=goofspiel(num_cards=4,"
        "returns_type=total_points))",
        {},
        40,
    ),
]


@pytest.mark.parametrize(("environment_id", "kwargs", "num_steps"), GAMES)
@pytest.mark.slow
def test_a_plain_loop_says_the_same(
    environment_id: str, kwargs: dict[str, object], num_steps: int, make: Make
) -> None:
    made = make(environment_id, kwargs=kwargs, num_envs=2)
    seeds = [5, 2**62]
    played = play_batched(made, seeds=seeds, num_steps=num_steps)
    game = load_game(environment_id, kwargs)
    num_played = 0
    for seed, episodes in zip(seeds, played, strict=True):
        for k, episode in enumerate(episodes[:-1]):
            assert_same(episode, replay(game, seed=episode_seed(seed, episode=k), recorded=episode))
            num_played += 1
            if game.game.num_players() == 2:
                first, second = (episode.returns[agent] for agent in made.spec.agents)
                expected = 0.5 if first == second else float(first > second)
                assert episode.score == [expected, 1.0 - expected]
            elif game.game.num_players() == 1:
                assert math.isnan(episode.score[0])
    assert num_played >= 2


def replay(loaded: OpenSpielGame, *, seed: int, recorded: Episode) -> Episode:
    """A second, plain implementation, with actions that were recorded."""
    game = loaded.game
    agents = [f"player_{player}" for player in range(game.num_players())]
    episode = Episode(returns=dict.fromkeys(agents, 0.0), over=True)
    state = game.new_initial_state()
    num_draws = 0
    while not state.is_terminal():
        if state.is_chance_node():
            state.apply_action(plain_chance(state.chance_outcomes(), uniform(seed, draw=num_draws)))
            num_draws += 1
            continue
        at_once = state.is_simultaneous_node()
        joint = []
        for player in range(game.num_players()) if at_once else [state.current_player()]:
            recorded_action = recorded.decisions[len(episode.decisions)].action
            legal = set(state.legal_actions(player))
            episode.decisions.append(
                Decision(
                    agent=agents[player],
                    observation=plainly_seen(loaded, state, player),
                    mask=[index in legal for index in range(game.num_distinct_actions())],
                    action=recorded_action,
                )
            )
            joint.append(recorded_action)
        if at_once:
            state.apply_actions(joint)
        else:
            state.apply_action(*joint)
    # The returns are OpenSpiel's own sums of all rewards.
    episode.returns = dict(zip(agents, state.returns(), strict=True))
    episode.terminated = set(agents)
    return episode


def plainly_seen(loaded: OpenSpielGame, state: Any, player: int) -> list[float]:
    if loaded.seen == "information_state":
        shape = loaded.game.information_state_tensor_shape()
        numbers = state.information_state_tensor(player)
    else:
        shape = loaded.game.observation_tensor_shape()
        numbers = state.observation_tensor(player)
    tensor = np.array(numbers, dtype=np.float32).reshape(shape)
    if tensor.ndim == 3:
        tensor = np.stack(list(tensor), axis=-1)
    return [float(value) for value in tensor.flat]


def plain_chance(outcomes: list[tuple[int, float]], number: float) -> int:
    probabilities = np.array([probability for _, probability in outcomes])
    if np.allclose(probabilities, probabilities[0], rtol=0.0, atol=1e-12):
        return outcomes[math.floor(number * len(outcomes))][0]
    at = int(np.searchsorted(np.cumsum(probabilities), number, side="right"))
    return outcomes[min(at, len(outcomes) - 1)][0]


def test_rewards_come_when_they_are_won(make: Make) -> None:
    """In 2048 what a move merges is its reward: the sum of the new tiles."""
    made = make("openspiel:2048", kwargs={"max_tile": 32}, num_envs=1)
    (episodes,) = play_batched(made, seeds=[3], num_steps=120)
    env, recorded = made.env, episodes[0]
    game = load_game("openspiel:2048", {"max_tile": 32})
    turn = env.reset([3])
    state, num_draws = game.game.new_initial_state(), 0
    seed = episode_seed(3, episode=0)
    rewards = []
    for decision in recorded.decisions:
        while state.is_chance_node():
            state.apply_action(plain_chance(state.chance_outcomes(), uniform(seed, draw=num_draws)))
            num_draws += 1
        state.apply_action(decision.action)
        turn = env.step({"player_0": turn.groups["player_0"].agent_index * 0 + decision.action})
        assert turn.reward.tolist() == [state.rewards()]
        rewards.append(float(turn.reward))
    assert bool(turn.episode_over)
    assert len({reward for reward in rewards if reward > 0.0}) > 2


class _Row:
    """Writes down what a stepper tells."""

    def __init__(self, *populations: str) -> None:
        self.populations = populations
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.told.append((name, *arguments))

    def action(self, agent: str, actions: Mapping[str, list[int]]) -> int:
        """Return the next action of the agent's population, where each agent has its slot."""
        player = int(agent[-1])
        name = self.populations[player]
        return actions[name][self.populations[:player].count(name)]


def test_kuhn_poker_by_hand() -> None:
    """Seed 1 deals by floor(3 u_0), then floor(2 u_1) of what is left; pass, bet, pass."""
    row = _Row("a", "b")
    game = load_game("openspiel:kuhn_poker", {})
    stepper = OpenSpielStepper(game, row=row)  # type: ignore[arg-type]
    stepper.start(1)
    cards = [0, 1, 2]
    first = cards.pop(int(3 * uniform(1, draw=0)))
    second = cards[int(2 * uniform(1, draw=1))]

    def private(player: int, card: int) -> list[float]:
        return [float(at == player) for at in range(2)] + [float(at == card) for at in range(3)]

    assert row.told[0] == ("begin",)
    name, agent, observation, info = row.told[1]
    assert (name, agent, info) == ("ask", "player_0", None)
    assert observation["observation"].tolist() == private(0, first) + [0.0] * 6
    assert observation["action_mask"].tolist() == [1, 1]
    assert stepper.on_turn == "agent 'player_0' on turn"
    assert not stepper.step({"a": [0], "b": [9]})
    assert row.told[2] == ("credit", {"player_0": 0.0, "player_1": 0.0})
    assert row.told[3][1] == "player_1"
    assert row.told[3][2]["observation"].tolist() == (
        [*private(1, second), 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    )
    assert not stepper.step({"a": [9], "b": [1]})
    assert stepper.step({"a": [0], "b": [9]})
    assert row.told[-4:] == [
        ("credit", {"player_0": -1.0, "player_1": 1.0}),
        ("terminate", "player_0", None),
        ("terminate", "player_1", None),
        ("finish", {}),
    ]


def test_who_decides_by_its_place_and_who_by_probability() -> None:
    equal = [(5, 0.25), (6, 0.25), (7, 0.25), (9, 0.25)]
    assert [chance_outcome(equal, uniform=u) for u in (0.0, 0.2499, 0.25, 0.999999)] == [5, 5, 6, 9]
    biased = [(5, 0.5), (6, 0.0), (7, 0.5)]
    assert [chance_outcome(biased, uniform=u) for u in (0.0, 0.4999, 0.5, 0.9999)] == [5, 5, 7, 7]
    # The probabilities sum to less than 1 by rounding, and one outcome has probability 0.
    short = [(1, 0.5), (2, 0.4), (3, 0.0)]
    assert chance_outcome(short, uniform=0.95) == 2


@given(
    weights=st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any),
    number=st.floats(0.0, 1.0, exclude_max=True),
)
def test_chance_agrees_with_numpy(weights: list[int], number: float) -> None:
    outcomes = [(10 + at, weight / sum(weights)) for at, weight in enumerate(weights)]
    chosen = chance_outcome(outcomes, uniform=number)
    assert dict(outcomes)[chosen] > 0.0
    edges = np.cumsum([probability for _, probability in outcomes])
    if np.abs(edges - number).min() > 1e-9:
        assert chosen == plain_chance(outcomes, number)


def test_facts() -> None:
    spec = openspiel_facts("openspiel:leduc_poker()", kwargs={"players": 3})
    assert (spec.id, spec.kwargs, spec.api) == ("openspiel:leduc_poker", {"players": 3}, "aec")
    assert spec.agents == ("player_0", "player_1", "player_2")
    game = pyspiel.load_game("leduc_poker", {"players": 3})
    for facts in spec.agent_specs.values():
        assert facts.observation["shape"] == game.information_state_tensor_shape()
        assert facts.action == {"kind": "Discrete", "n": 3, "start": 0}
        assert facts.mask == "observation"
    assert set(spec.versions) == {"open_spiel"}


def test_planes_are_last_as_pettingzoo_has_them() -> None:
    spec = openspiel_facts("openspiel:connect_four", kwargs={})
    assert pyspiel.load_game("connect_four").observation_tensor_shape() == [3, 6, 7]
    assert spec.agent_specs["player_0"].observation["shape"] == [6, 7, 3]
    game = load_game("openspiel:connect_four", {})
    state = game.game.new_initial_state()
    state.apply_action(4)
    seen = game.see(state, 1)
    # Of the three planes one has all cells but one, one has that cell, one is empty.
    assert seen.shape == (6, 7, 3)
    assert sorted(seen.sum(axis=(0, 1)).tolist()) == [0.0, 1.0, 41.0]
    assert seen[0, 4].sum() == 1.0
    assert len({tuple(seen[row, column]) for row in range(6) for column in range(7)}) == 2


@pytest.mark.parametrize(
    ("asked", "size"), [("auto", 30), ("information_state", 30), ("observation", 16)]
)
def test_what_players_see_is_chosen(asked: str, size: int) -> None:
    kwargs = {"observation": asked}
    spec = openspiel_facts("openspiel:leduc_poker(players=2)", kwargs=kwargs)
    assert spec.agent_specs["player_0"].observation["shape"] == [size]
    assert spec.kwargs == kwargs


def test_games_with_a_node_for_all_are_parallel() -> None:
    spec = openspiel_facts("openspiel:goofspiel", kwargs={"num_cards": 4, "players": 3})
    assert spec.api == "parallel"
    assert spec.agents == ("player_0", "player_1", "player_2")
    assert spec.agent_specs["player_2"].action == {"kind": "Discrete", "n": 4, "start": 0}


def test_the_child_that_inspects_says_the_same(assets: str) -> None:
    environment_id = "openspiel:kuhn_poker(players=3)"
    here = environment_facts(EnvironmentRequest(environment_id, launch_directory=assets))
    child = inspect_environment(EnvironmentRequest(environment_id, launch_directory=assets))
    assert child == here == openspiel_facts(environment_id, kwargs={})


def test_one_way_to_write_an_id() -> None:
    assert canonical_game_id("openspiel:leduc_poker()") == "openspiel:leduc_poker"
    assert canonical_game_id("openspiel: hex( board_size=3 )") == "openspiel:hex(board_size=3)"


@pytest.mark.parametrize(
    ("environment_id", "kwargs", "message"),
    [
        ("openspiel:mfg_garnet", {}, "it is a mean-field game"),
        (
            "openspiel:tic_tac_toe",
            {"observation": "information_state"},
            "what tic_tac_toe gives as a tensor, observation; got 'information_state'",
        ),
        (
            "openspiel:kuhn_poker",
            {"observation": "pixels"},
            "one of auto, information_state, observation, got 'pixels'",
        ),
        ("openspiel:negotiation", {}, "must tell the outcomes of chance"),
        ("openspiel:coin_game", {}, "coin_game must say what players see as a tensor"),
        ("openspiel:crossword", {}, "as a tensor: ObservationTensorShape unimplemented"),
        ("openspiel:nfg_game", {}, "cannot be made"),
        ("openspiel:kuhn_poker", {"decks": 2}, "Unknown parameter 'decks'"),
        ("openspiel:kuhn_poker", {"players": None}, "cannot be made"),
        ("openspiel:kuhn_poker(players=99)", {}, "cannot be made"),
        ("openspiel:kuhn_poker(players=3)", {"players": 3}, "in the id or in environment.kwargs"),
    ],
)
def test_games_that_cannot_be_played(
    environment_id: str, kwargs: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_game(environment_id, kwargs)
    assert environment_id in str(caught.value)


@pytest.mark.parametrize("environment_id", ["openspiel:kuhn_pokr", "openspiel:Kuhn_poker(x"])
def test_an_unknown_game_is_answered_with_its_neighbour(
    environment_id: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(EnvironmentUnavailable, match="nearest: openspiel:kuhn_poker"):
        load_game(environment_id, {})
    # OpenSpiel itself would list a hundred games on standard error.
    assert capfd.readouterr().err == ""


def test_without_openspiel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    with pytest.raises(EnvironmentUnavailable, match=r"pip install open_spiel$"):
        openspiel_facts("openspiel:kuhn_poker", kwargs={})


def test_known_games_are_those_with_twins() -> None:
    known = {game.id: game for game in known_games()}
    assert set(known) == {"openspiel:kuhn_poker", "openspiel:leduc_poker"}
    assert all(game.installed and game.apis == ("aec",) for game in known.values())


class Dice:
    """A game of two players as pyspiel has them, with nodes of all kinds.

    Player 1 alone chooses; then both do, at once; then both could, but only player 0 has something
    to choose; then nobody has. Each gains what it chose: player 0 twos, player 1 ones.
    """

    length = 9

    def __init__(self) -> None:
        self.chosen: list[list[int]] = []

    def max_game_length(self) -> int:
        return self.length

    def num_players(self) -> int:
        return 2

    def new_initial_state(self) -> Dice:
        made = Dice()
        made.length = self.length
        return made

    def is_chance_node(self) -> bool:
        return False

    def is_terminal(self) -> bool:
        return len(self.chosen) == 4

    def is_simultaneous_node(self) -> bool:
        return len(self.chosen) > 0

    def current_player(self) -> int:
        return 1

    def legal_actions(self, player: int) -> list[int]:
        decides = [[1], [0, 1], [0], []][len(self.chosen)]
        return [0, 1, 2] if player in decides else []

    def legal_actions_mask(self, player: int) -> list[int]:
        return [1, 1, 1]

    def observation_tensor(self, player: int) -> list[float]:
        return [float(player), float(len(self.chosen))]

    def apply_action(self, action: int) -> None:
        self.chosen.append([0, action])

    def apply_actions(self, actions: list[int]) -> None:
        assert len(actions) == 2
        self.chosen.append(actions)

    def returns(self) -> list[float]:
        return [sum(2.0 * a for a, _ in self.chosen), sum(1.0 * b for _, b in self.chosen)]


def stepper_of(game: object) -> tuple[OpenSpielStepper, _Row]:
    """Of a game of two players, who are in one population."""
    row = _Row("p", "p")
    loaded = OpenSpielGame(game=game, seen="observation", tensor_shape=(2,), has_planes_first=False)
    return OpenSpielStepper(loaded, row=row), row  # type: ignore[arg-type]


def told(row: _Row) -> list[object]:
    """Who was asked with which observation, what was paid, how it ended; since the last look."""
    lines: list[object] = []
    for name, *arguments in row.told:
        if name == "credit":
            lines.append(list(arguments[0].values()))
        elif name == "ask":
            lines.append((arguments[0], arguments[1]["observation"].tolist()))
        elif name == "truncate":
            lines.append(("truncate", arguments[0], arguments[1]["observation"].tolist()))
        else:
            lines.append((name, *arguments[:1]))
    row.told.clear()
    return lines


def test_only_who_has_something_to_decide_is_asked() -> None:
    stepper, row = stepper_of(Dice())
    stepper.start(1)
    assert told(row) == [("begin",), ("player_1", [1.0, 0.0])]
    assert not stepper.step({"p": [9, 2]})
    assert told(row) == [[0.0, 2.0], ("player_0", [0.0, 1.0]), ("player_1", [1.0, 1.0])]
    assert stepper.on_turn == "agents ['player_0', 'player_1'] on turn"
    assert not stepper.step({"p": [1, 2]})
    assert told(row) == [[2.0, 2.0], ("player_0", [0.0, 2.0])]
    assert stepper.on_turn == "agent 'player_0' on turn"
    # The last node has no decision.
    assert stepper.step({"p": [2, 9]})
    assert told(row) == [
        [4.0, 0.0],
        ("terminate", "player_0"),
        ("terminate", "player_1"),
        ("finish", {}),
    ]


def test_a_game_that_goes_on_longer_than_it_says_is_truncated() -> None:
    game = Dice()
    game.length = 2
    stepper, row = stepper_of(game)
    stepper.start(1)
    assert not stepper.step({"p": [0, 2]})
    told(row)
    assert stepper.step({"p": [1, 0]})
    assert told(row) == [
        [2.0, 0.0],
        ("truncate", "player_0", [0.0, 2.0]),
        ("truncate", "player_1", [1.0, 2.0]),
        ("finish", {}),
    ]


def test_a_game_that_chance_alone_ends() -> None:
    class Over(Dice):
        def is_terminal(self) -> bool:
            return True

        def new_initial_state(self) -> Over:
            return self

    stepper, _ = stepper_of(Over())
    with pytest.raises(EnvironmentFault, match="the game is over"):
        stepper.start(1)
