"""Kept games of real environments are played again exactly; one that cannot be says why."""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from arena.environment_spec import EnvironmentRequest
from arena.envs.checks.check import check_environment
from arena.games.recording import GameParted
from experiments.leagues.played_again import CASES, USERS, keep_games, played_again
from tools.replay.retelling import retold

UNSEEDED, TOO_LONG = "unseeded", "too_long"
HEAVY = {"simple_spread", "simple_tag", "pistonball", "chess", "othello", "leduc_poker"}
GAMES = 8
SHOWS = "shows or pays something else than in the game"
BREAKS = "refuses: environment three_sides:Guess in step, "


def parameter(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.slow if name in HEAVY else ())


@pytest.mark.parametrize(
    "name", [parameter(name) for name in CASES if name not in (UNSEEDED, TOO_LONG)]
)
def test_games_of_a_run_are_played_again_exactly(name: str, tmp_path: Path) -> None:
    left_out = keep_games(CASES[name], tmp_path / "run", number=GAMES)
    found = played_again(tmp_path / "run")
    assert (found.reason, left_out) == ("", 0)
    assert found.exact == found.games >= GAMES
    assert found.steps >= found.games


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_games_that_are_too_long_are_left_out_and_counted(tmp_path: Path) -> None:
    assert keep_games(CASES[TOO_LONG], tmp_path / "run", number=GAMES) == GAMES
    assert played_again(tmp_path / "run").games == 0


def refusal(run: Path, game: str) -> str:
    with pytest.raises(GameParted) as refused:
        retold(run, game=game, trust=True)
    return str(refused.value)


def test_an_environment_that_does_not_follow_its_seed_is_refused_as_the_check_says(
    tmp_path: Path,
) -> None:
    case = CASES[UNSEEDED]
    keep_games(case, tmp_path / "run", number=GAMES)
    found = played_again(tmp_path / "run")
    assert found.parted == found.games >= GAMES
    assert refusal(tmp_path / "run", "1.0") == (
        "game 1.0 cannot be shown: mistakes:AtOnce was changed since, or does not follow its seed: "
        "at step 0 of 8 it shows or pays something else than in the game"
    )
    request = EnvironmentRequest(case.id, kwargs=dict(case.kwargs), launch_directory=str(USERS))
    assert check_environment(request, seconds=1.0).deterministic is False


def pays_more(step: Any) -> Any:
    """Pay a quarter more in the third round."""

    def changed(guess: Any, actions: dict[str, int]) -> Any:
        seen, rewards, *rest = step(guess, actions)
        more = 0.25 * (guess._step == 3)
        return seen, {agent: paid + more for agent, paid in rewards.items()}, *rest

    return changed


def breaks(step: Any) -> Any:
    """Raise in the third round."""

    def changed(guess: Any, actions: dict[str, int]) -> Any:
        if guess._step == 2:
            raise KeyError("no third round")
        return step(guess, actions)

    return changed


@pytest.mark.parametrize(
    ("target", "changed", "step", "why"),
    [
        pytest.param("NUM_ROUNDS", lambda rounds: rounds - 1, 3, SHOWS, id="shorter"),
        pytest.param("NUM_ROUNDS", lambda rounds: rounds + 1, 4, SHOWS, id="longer"),
        pytest.param("Guess.step", pays_more, 3, SHOWS, id="another reward"),
        pytest.param("Guess.step", breaks, 2, BREAKS, id="it breaks"),
    ],
)
def test_a_changed_rule_is_named_with_its_step(
    target: str,
    changed: Callable[[Any], Any],
    step: int,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep_games(CASES["three_sides"], tmp_path / "run", number=GAMES)
    # Imported from the directory of the launch, as users' modules are.
    value = attrgetter(target)(sys.modules["three_sides"])
    monkeypatch.setattr(f"three_sides.{target}", changed(value))
    assert refusal(tmp_path / "run", "1.0").startswith(
        "game 1.0 cannot be shown: three_sides:Guess was changed since, or does not follow its "
        f"seed: at step {step} of 4 it {why}"
    )
