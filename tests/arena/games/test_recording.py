"""Recorded games are played again exactly, and whatever differs is found at its step."""

from __future__ import annotations

import zlib
from collections import Counter
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs

from arena.environment_spec import EnvironmentRequest
from arena.envs.base import BatchedEnv, Turn, TurnWrapper
from arena.envs.inspect import inspect_environment
from arena.games import recording
from arena.games.recording import GameParted, GameRecorder, recorded_environments, replay
from arena.types import SHOWN_BYTES, Game
from populations.config.run_config import validate_config
from populations.config.run_file import learner_setup, new_run_file
from tests.recorded_games import play
from tools.players import game as games

NUM_ENVS, NUM_MATCHES = 12, 3
USERS = str(Path(__file__).parents[2] / "assets")

environment = cache(games.Game.of_environment)


def played(
    of: games.Game, *, most: int = NUM_ENVS, env: BatchedEnv | None = None
) -> tuple[GameRecorder, Any]:
    """Let random players meet; return what was recorded, and the tallies."""
    return play(
        of,
        num_envs=NUM_ENVS,
        most=most,
        num_matches=NUM_MATCHES,
        first_seed=100,
        env=env,
    )


TEAM = {"sides": {"team": ["*"]}}


@pytest.fixture(
    scope="module",
    params=[
        {"id": "classic/connect_four-v3"},
        {"id": "classic/connect_four-v3", "backend": "pettingzoo"},
        {"id": "openspiel:leduc_poker"},
        {"id": "classic/rps-v2"},
        {"id": "classic/tictactoe-v3"},
        {"id": "mpe2/simple_spread_v3"},
        {"id": "mpe2/simple_tag_v3"},
        # The game has chance at the reset and at each step, and agents that come and go.
        {"id": "three_sides:Guess"},
        {"id": "unruly:Grass", **TEAM},
    ],
    ids=lambda section: f"{section['id']} {section.get('backend', '')}".strip(),
)
def known(request: Any) -> tuple[games.Game, list[Game]]:
    of = configured(request.param)
    recorder, _ = played(of)
    return of, recorder.games


def configured(section: dict[str, Any]) -> games.Game:
    """Return the game of a section ``environment``, of ``tests/assets`` where it is a user's."""
    request = EnvironmentRequest(
        section["id"],
        kwargs=section.get("kwargs", {}),
        backend=section.get("backend", "auto"),
        launch_directory=USERS,
    )
    run_file = new_run_file(
        validate_config({"environment": section}),
        inspect_environment(request),
        name="games",
        launch_directory=USERS,
    )
    return games.Game.of_setup(learner_setup(run_file, root=Path.cwd()))


def test_games_are_played_again_exactly(known: tuple[games.Game, list[Game]]) -> None:
    of, recorded = known
    is_cooperation = len(of.sides) == 1
    assert len(recorded) == NUM_ENVS * (2 if is_cooperation else 1)
    with closing(of.make_env(1)) as env:
        for game in recorded:
            returns = torch.zeros(len(env.agents), dtype=torch.float64)
            for step, (turn, actions) in enumerate(replay(env, game)):
                # The turn before the first step pays nothing.
                returns += turn.reward[0] * (step > 0)
                assert (actions is None) == (step == game.steps)
            assert step == game.steps
            assert bool(turn.episode_over[0])
            if not is_cooperation:
                assert tuple(turn.score[0].tolist()) == game.points
            # The returns are those that the matches report.
            by_agent = dict(zip(env.agents, returns.tolist(), strict=True))
            for seat, expected in zip(game.seats, game.returns, strict=True):
                agents = of.seats[seat].agents
                mean = sum(by_agent[agent] for agent in agents) / len(agents)
                assert expected == pytest.approx(mean, abs=1e-9)


class Changed(TurnWrapper):
    """An environment of which one thing is another one from its third turn on."""

    def __init__(self, env: BatchedEnv, what: str) -> None:
        super().__init__(env)
        self.what, self.turns = what, 0

    def _changed(self, turn: Turn) -> Turn:
        self.turns += 1
        if self.turns < 4:
            return turn
        (name, group), *_ = turn.groups.items()
        match self.what:
            case "reward":
                turn.reward = turn.reward + 0.25
            case "observation":
                seen = group.observation.clone()
                seen[0, 0, 0] += 1.0
                turn.groups = {**turn.groups, name: replace(group, observation=seen)}
            case "mask":
                assert group.action_mask is not None
                turn.groups = {**turn.groups, name: replace(group, action_mask=~group.action_mask)}
            case "end":
                turn.terminated = ~turn.terminated
        return turn


@pytest.mark.parametrize("what", ["reward", "observation", "mask", "end"])
def test_another_rule_is_found_at_its_step(what: str) -> None:
    of = environment("classic/tictactoe-v3")
    recorder, _ = played(of, most=1)
    (game,) = recorder.games
    with closing(Changed(of.make_env(1), what)) as env, pytest.raises(GameParted) as parted:
        list(replay(env, game))
    assert f"at step 3 of {game.steps} it shows or pays something else" in str(parted.value)


def test_an_environment_that_does_not_follow_its_seed_is_refused() -> None:
    of = configured({"id": "mistakes:AtOnce", "kwargs": {"mistakes": ["unseeded"]}})
    recorder, _ = played(of, most=1)
    with closing(of.make_env(1)) as env, pytest.raises(GameParted, match="at step 0"):
        list(replay(env, recorder.games[0]))


def test_another_environment_is_refused() -> None:
    kuhn, four = map(environment, ("openspiel:kuhn_poker", "classic/connect_four-v3"))
    recorder, _ = played(kuhn, most=1)
    with closing(four.make_env(1)) as env, pytest.raises(GameParted, match="at step 0"):
        list(replay(env, recorder.games[0]))


@pytest.mark.parametrize(
    ("actions", "says"),
    [
        (b"", "its actions are 0 bytes"),
        (b"no zlib", "cannot be read"),
        (zlib.compress(bytes(8)), "its actions are 8 bytes"),
        (zlib.compress(bytes(10**7)), "its actions are"),
        (zlib.compress(b"\xff" * 8 * 9), "it refuses"),
    ],
)
def test_actions_that_were_tampered_with_are_refused(actions: bytes, says: str) -> None:
    of = environment("classic/tictactoe-v3")
    recorder, _ = played(of)
    game = next(game for game in recorder.games if game.steps == 9)
    with closing(of.make_env(1)) as env, pytest.raises(GameParted, match=says):
        list(replay(env, structs.replace(game, actions=actions)))


def test_a_game_that_broke_is_not_recorded() -> None:
    of = environment("classic/tictactoe-v3")

    class Breaks(TurnWrapper):
        """Voids the first episode of environment 0."""

        is_broken = False

        def _changed(self, turn: Turn) -> Turn:
            if bool(turn.episode_over[0]) and not self.is_broken:
                self.is_broken = True
                turn.void = torch.arange(self.num_envs) == 0
            return turn

    recorder, tallies = played(of, most=2, env=Breaks(of.make_env(NUM_ENVS)))
    assert sum(tally.matches for tally in tallies) == NUM_ENVS * NUM_MATCHES
    assert [game.pairing for game in recorder.games] == [1]
    with closing(of.make_env(1)) as env:
        list(replay(env, recorder.games[0]))


def test_games_that_are_too_long_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    of = environment("classic/connect_four-v3")
    everything, _ = played(of)
    most = sorted(game.size_bytes for game in everything.games)[5]
    monkeypatch.setattr(recording, "MAX_GAME_BYTES", most)
    recorder, _ = played(of)
    few = [game for game in everything.games if game.size_bytes <= most]
    # The choice of recorded games must not change how any game goes.
    assert sorted(recorder.games, key=str) == sorted(few, key=str)
    assert recorder.num_left_out == NUM_ENVS - len(few)


def test_games_have_a_bound_together(monkeypatch: pytest.MonkeyPatch) -> None:
    of = environment("classic/connect_four-v3")
    monkeypatch.setattr(recording, "MAX_GAMES_BYTES", 400)
    recorder, _ = played(of)
    size = sum(game.size_bytes for game in recorder.games)
    assert 300 < size <= 400
    assert len(recorder.games) + recorder.num_left_out == NUM_ENVS


def test_recording_changes_no_match() -> None:
    of = environment("openspiel:leduc_poker")
    assert played(of)[1] == played(of, most=0)[1]


def test_one_game_of_each_pairing_comes_before_a_second_one() -> None:
    shares = [(0, 2), (1, 1), (2, 4), (0, 1)]
    assert recorded_environments(shares, most=3) == {0: 0, 2: 1, 3: 2}
    assert recorded_environments(shares, most=8) == {0: 0, 2: 1, 3: 2, 1: 0, 4: 2}
    assert recorded_environments(shares, most=0) == {}


def test_bounds_of_a_game() -> None:
    of = environment("classic/connect_four-v3")
    recorder, _ = played(of)
    assert Counter(game.pairing for game in recorder.games) == Counter(range(NUM_ENVS))
    for game in recorder.games:
        assert len(game.shown) == SHOWN_BYTES * (game.steps + 1)
        # An action is one of seven columns, so its eight bytes pack to about one.
        assert len(game.actions) < 2 * game.steps + 16


def test_chance_is_part_of_a_game() -> None:
    of = environment("openspiel:kuhn_poker")
    recorder, _ = played(of)
    dealt: set[tuple[float, ...]] = set()
    with closing(of.make_env(1)) as env:
        for game in recorder.games:
            first, _ = next(iter(replay(env, game)))
            (group,) = first.groups.values()
            dealt.add(tuple(group.observation[0, 0].tolist()))
    # The first player has three possible cards.
    assert len(dealt) == 3
