"""Users' bots in real environments: what they are given, told and called with."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pettingzoo.classic import connect_four_v3

from arena.core import ActorInput
from arena.environment_spec import AgentSpec
from arena.envs.base import Group
from arena.errors import ConfigError
from arena.matches.actors import BotActor, make_bot
from arena.matches.match import Block, play_matches
from arena.matches.recurrent_state import RecurrentState
from arena.matches.seated import SeatedPlayers, block_of_envs
from arena.matches.seating import make_seats
from arena.spaces import ActionLayout
from arena.types import Entrant, Tally
from tests.arena.samples import facts_of, make_env

BOARD = "classic/connect_four-v3"
AGENTS = ("player_0", "player_1")
SIDES = {agent: (agent,) for agent in AGENTS}
SEATS = make_seats(agents=AGENTS, sides=SIDES, populations={"player": AGENTS})
SPEC = facts_of(BOARD)
FACTS = SPEC.agent_specs["player_0"]
ACTIONS = ActionLayout.from_json(FACTS.action, continuous="squashed")


class Watching:
    """Plays the leftmost column, or draws from its game's own generator; remembers everything."""

    def __init__(self, *, draws: bool = False) -> None:
        self.draws = draws
        self.told: list[tuple[int, str, tuple[str, ...], int]] = []
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self.seen: list[tuple[int, Any]] = []
        self.moves: dict[tuple[int, str], list[int]] = {}
        self.seed_of: dict[tuple[int, str], int] = {}
        self.games: list[tuple[int, tuple[int, ...]]] = []
        self._rng: dict[tuple[int, str], np.random.Generator] = {}

    def reset(self, game: int, *, seat: str, agents: tuple[str, ...], seed: int) -> None:
        self.told.append((game, seat, agents, seed))
        for agent in agents:
            self.moves[game, agent] = []
            self.seed_of[game, agent] = seed
            self._rng[game, agent] = np.random.default_rng(seed)

    def act(
        self,
        observation: Any,
        action_mask: npt.NDArray[np.bool_] | None,
        *,
        agent: str,
        rng: np.random.Generator,
        games: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.int64]:
        assert action_mask is not None
        self.calls.append((agent, tuple(games.tolist())))
        chosen = []
        for row, game in enumerate(games.tolist()):
            self.seen.append((game, {name: part[row] for name, part in observation.items()}))
            legal = np.flatnonzero(action_mask[row])
            column = self._rng[game, agent].choice(legal) if self.draws else legal[0]
            chosen.append(int(column))
            self.moves[game, agent].append(int(column))
        return np.array(chosen)


def watched(bot: object) -> BotActor:
    return BotActor(bot, name="bot:tests:Watching", facts=FACTS, actions=ACTIONS)  # type: ignore[arg-type]


def play(
    *actors: BotActor, num_envs: int, num_matches: int, seed: int = 1, backend: str = "pettingzoo"
) -> tuple[Tally, ...]:
    env = make_env(
        SPEC, num_envs=num_envs, populations={"player": AGENTS}, config={"backend": backend}
    )
    try:
        return play_matches(
            env,
            blocks=[
                Block(
                    entrants=(Entrant("a"), Entrant("b")),
                    actors=(actors[0], actors[-1]),
                    num_envs=num_envs,
                    num_matches=num_matches,
                )
            ],
            seats=SEATS,
            sides=SIDES,
            seeds=range(num_envs),
            generator=torch.Generator().manual_seed(seed),
        )
    finally:
        env.close()


@pytest.mark.parametrize("backend", ["pettingzoo", "batched"])
def test_a_bot_sees_what_the_environment_gives_mask_included(backend: str) -> None:
    """The same game, played by hand in PettingZoo's own environment."""
    bot = Watching()
    play(watched(bot), num_envs=1, num_matches=1, backend=backend)
    env = connect_four_v3.raw_env()
    env.reset(seed=0)
    for _, seen in bot.seen:
        own = env.observe(env.agent_selection)
        assert seen.keys() == own.keys() == {"observation", "action_mask"}
        for name, part in own.items():
            assert np.array_equal(seen[name], part)
            assert seen[name].dtype == part.dtype
        env.step(int(np.flatnonzero(own["action_mask"])[0]))
    assert env.terminations["player_0"]


def test_masks_in_other_places_are_where_the_environment_has_them() -> None:
    box = {"kind": "Box", "shape": [2], "dtype": "float32", "low": 0.0, "high": 1.0}
    action = {"kind": "Discrete", "n": 3, "start": 0}
    rows, mask = torch.tensor([[0.25, 0.5]]), torch.tensor([[True, False, True]])
    seen: dict[str, Any] = {}

    class Looking:
        def act(self, observation: Any, action_mask: Any, *, agent: str, rng: Any) -> Any:
            seen[agent] = observation
            assert action_mask.dtype == np.bool_
            return np.array([0])

    def look(place: str, observation: Any, name: str) -> None:
        facts = AgentSpec(observation=observation, action=action, mask=place)  # type: ignore[arg-type]
        actions = ActionLayout.from_json(action, continuous="squashed")
        actor = BotActor(Looking(), name="bot", facts=facts, actions=actions)
        actor.act(
            ActorInput(observation=rows, action_mask=mask), agent=name, generator=torch.Generator()
        )

    look("info", box, "info")
    look("beside", {"kind": "Dict", "spaces": {"eyes": box}}, "beside")
    look("observation", box, "inside")
    assert seen["info"].tolist() == [[0.25, 0.5]]
    assert seen["beside"]["eyes"].tolist() == [[0.25, 0.5]]
    assert seen["beside"].keys() == {"eyes", "action_mask"}
    assert seen["inside"]["observation"].tolist() == [[0.25, 0.5]]
    for place in ("beside", "inside"):
        assert seen[place]["action_mask"].tolist() == [[1, 0, 1]]
        assert seen[place]["action_mask"].dtype == np.int8


def test_a_network_that_is_told_who_decides_changes_nothing_for_bots() -> None:
    seen: list[Any] = []

    class Looking:
        def act(self, observation: Any, action_mask: Any, *, agent: str, rng: Any) -> Any:
            seen.append(observation["observation"].shape)
            return np.array([0])

    # With an agent id, rows end with two more numbers.
    mask = torch.ones(1, 7, dtype=torch.bool)
    watched(Looking()).act(
        ActorInput(observation=torch.zeros(1, 86), action_mask=mask),
        agent="player_0",
        generator=torch.Generator(),
    )
    assert seen == [(1, 6, 7, 2)]


def test_a_bot_is_told_of_every_episode_in_each_of_its_seats() -> None:
    bot = Watching()
    actor = watched(bot)
    (tally,) = play(actor, num_envs=3, num_matches=2)
    assert tally.matches == 6
    told = defaultdict(list)
    for game, seat, agents, seed in bot.told:
        assert agents == (seat,)
        assert 0 <= seed < 2**63
        told[game, seat].append(seed)
    assert {key: len(seeds) for key, seeds in told.items()} == {
        (game, seat): 2 for game in range(3) for seat in AGENTS
    }
    seeds = [seed for *_, seed in bot.told]
    assert len(set(seeds)) == len(seeds)


def test_a_bot_knows_the_game_of_each_row() -> None:
    """Its board shows as many stones as the bot has counted in that game."""
    one, other = Watching(draws=True), Watching()
    play(watched(one), watched(other), num_envs=4, num_matches=2)
    num_seen: dict[int, int] = {}
    for game, seen in one.seen:
        stones = int(seen["observation"].sum())
        # The first player sees 0, 2, 4... stones; a new game starts at 0 again.
        assert stones in (0, num_seen.get(game, -2) + 2)
        num_seen[game] = stones
    assert {agent for agent, _ in one.calls} == {"player_0"}
    assert all(set(games) <= set(range(4)) for _, games in one.calls)


def test_a_seed_repeats_a_bots_decisions() -> None:
    played: list[Any] = []
    for seed in (1, 1, 2):
        bot = Watching(draws=True)
        actor = watched(bot)
        # Earlier matches make no difference, because the bot is cleared when they are over.
        if played:
            play(actor, num_envs=2, num_matches=1, seed=99)
            bot.told.clear()
        play(actor, num_envs=2, num_matches=2, seed=seed)
        played.append((bot.told, bot.moves))
    assert played[0] == played[1]
    assert played[0] != played[2]


def test_a_seed_of_a_game_is_all_that_its_draws_depend_on() -> None:
    bot = Watching(draws=True)
    play(watched(bot), num_envs=2, num_matches=1)
    for key, moves in bot.moves.items():
        rng = np.random.default_rng(bot.seed_of[key])
        # All seven columns are legal until one is full, which takes more than six own moves.
        assert [int(rng.choice(7)) for _ in moves[:3]] == moves[:3]


def seat(bot: BotActor, states: RecurrentState | None = None) -> SeatedPlayers[Any]:
    return SeatedPlayers(
        [(bot, bot)],
        block_of_env=block_of_envs([2]),
        seats=SEATS,
        agents=AGENTS,
        recurrent_state=states,
    )


def decide_once(seated: SeatedPlayers[Any]) -> None:
    group = Group(
        agent_index=torch.zeros(2, 1, dtype=torch.int64),
        observation=torch.zeros(2, 1, 84),
        action_mask=torch.ones(2, 1, 7, dtype=torch.bool),
    )
    owner = seated.owners(group.agent_index)
    seated.play_frozen(
        "player", group, owner=owner, action=group.new_actions(), generator=torch.Generator()
    )


def test_episodes_that_go_on_in_other_seats_are_not_reset() -> None:
    """As from one assignment to the next; unless the bot has played elsewhere meanwhile."""
    bot = Watching()
    actor = watched(bot)
    first = seat(actor)
    decide_once(first)
    decide_once(first)
    assert len(bot.told) == 2
    going_on = seat(actor, first.recurrent_state)
    decide_once(going_on)
    assert len(bot.told) == 2
    assert all(len(moves) == 3 for key, moves in bot.moves.items() if key[1] == "player_0")
    # An evaluation comes in between, in the same rows of another batch.
    decide_once(seat(actor))
    assert len(bot.told) == 4
    decide_once(seat(actor, going_on.recurrent_state))
    assert len(bot.told) == 6


def test_a_seat_of_several_agents_is_told_once() -> None:
    """A team of two whose members decide at once."""
    agents = ("a", "b", "c")
    sides = {"team": ("a", "b"), "c": ("c",)}
    seats = make_seats(agents=agents, sides=sides, populations={"player": agents})
    bot = Watching()
    spec = AgentSpec(
        observation={"kind": "Box", "shape": [1], "dtype": "float32", "low": 0.0, "high": 1.0},
        action={"kind": "Discrete", "n": 2, "start": 0},
        mask="observation",
    )
    layout = ActionLayout.from_json(spec.action, continuous="squashed")
    actor = BotActor(bot, name="bot", facts=spec, actions=layout)  # type: ignore[arg-type]
    seated: SeatedPlayers[Any] = SeatedPlayers(
        [(actor, actor)], block_of_env=block_of_envs([2]), seats=seats, agents=agents
    )
    group = Group(
        agent_index=torch.tensor([[0, 1], [-1, 2]]),
        observation=torch.zeros(2, 2, 1),
        action_mask=torch.ones(2, 2, 2, dtype=torch.bool),
    )
    owner = seated.owners(group.agent_index)
    seated.play_frozen(
        "player", group, owner=owner, action=group.new_actions(), generator=torch.Generator()
    )
    assert [(game, seat, members) for game, seat, members, _ in bot.told] == [
        (0, "team", ("a", "b")),
        (1, "c", ("c",)),
    ]
    assert bot.calls == [("a", (0,)), ("b", (0,)), ("c", (1,))]


MODULE = """
import numpy as np


class Deep:
    def __init__(self, *, depth=1, name="?"):
        self.depth, self.name = depth, name
        if depth > 9:
            raise ValueError("too deep")

    def act(self, observation, action_mask, *, agent, rng):
        return np.full(len(action_mask), self.depth)


class Broken:
    def act(self, observation, action_mask, *, agent, rng):
        return self._look(observation)

    def _look(self, observation):
        return observation["bord"]


class Forgetful(Broken):
    def reset(self, game):
        pass


class Careless(Broken):
    def reset(self, game, **told):
        return told["sead"]


class Positional:
    def act(self, observation, mask):
        return 0
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bots_of_test_bots.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop("bots_of_test_bots", None)
    return tmp_path


def made(name: str, home: Path) -> Any:
    return make_bot(
        f"bot:bots_of_test_bots:{name}", facts=FACTS, actions=ACTIONS, launch_directory=str(home)
    )


def ask(actor: Any) -> list[int]:
    mask = torch.ones(2, 7, dtype=torch.bool)
    answer = actor.act(
        ActorInput(observation=torch.zeros(2, 84), action_mask=mask),
        agent="player_0",
        generator=torch.Generator(),
    ).action
    chosen: list[int] = answer.tolist()
    return chosen


def test_a_class_is_called_with_the_literals(home: Path) -> None:
    assert ask(made("Deep", home)) == [1, 1]
    assert ask(made('Deep(name="x", depth=4)', home)) == [4, 4]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Deep(dept=1)", "Deep has no option dept; it has depth, name"),
        ("Deep(depth=10)", r'ValueError: too deep\n  File ".*bots_of_test_bots.py", line 9'),
        ("Deep(depth=open)", "must be a literal"),
        ("Positional", "has no method act.observation, action_mask, ., agent, rng."),
        ("Forgetful", r"its method must be reset\(game, \*, seat, agents, seed\)"),
    ],
)
def test_what_cannot_be_made_is_told(home: Path, name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        made(name, home)


@pytest.mark.parametrize(
    ("name", "said", "frames"),
    [
        ("Broken", "in act raised KeyError: 'bord'", ["in act", "in _look"]),
        ("Careless", "in reset raised KeyError: 'sead'", ["in reset"]),
    ],
)
def test_a_bug_in_a_bot_is_one_message_with_its_own_lines(
    home: Path, name: str, said: str, frames: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(made(name, home))
    first, *lines = str(caught.value).splitlines()
    assert first == f"bot:bots_of_test_bots:{name} {said}"
    # Each frame of user code has a location line and a code line, and nothing else is shown.
    assert len(lines) == 2 * len(frames)
    for frame, place in zip(frames, lines[::2], strict=True):
        assert place.startswith(f'  File "{home}/bots_of_test_bots.py", line ')
        assert place.endswith(frame)
