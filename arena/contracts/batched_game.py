"""The contract of `arena.envs.batched.game.BatchedGame`.

Shapes: B games, F features of a flattened observation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

import numpy as np
import torch

from arena.contracts.contract import Subject, name_of, reference_of
from arena.contracts.sample import SampleGame, sample_game
from arena.environment_spec import EnvironmentRequest, SpaceJson
from arena.envs.base import BatchedEnv, Turn
from arena.envs.batched.find import find_game
from arena.envs.batched.game import BatchedGame, BatchedGameClass
from arena.envs.checks.conformance import check_against
from arena.envs.random_play import random_legal_actions
from arena.envs.turn_diff import first_difference

NUM_GAMES = 6

Actions = Mapping[str, torch.Tensor]


def check_batched_game(
    game: Callable[..., BatchedGame] | str,
    *,
    kwargs: Mapping[str, object] | None = None,
    against: str | None = None,
    num_games: int = 200,
    num_calls: int = 200,
    launch_directory: str = "",
) -> None:
    """Check that a batched game is many games that know nothing of one another.

    Args:
        game: Class, or ``environment.id``: ``package.module:Class``.
        kwargs: Arguments of its constructor, and of ``against``.
        against: Id of an environment that must be the same game, move by move.
        num_games: Least number of games that are compared with those of ``against``.
        num_calls: Calls of ``step`` in which some game must end, whatever is played.
        launch_directory: Directory where ``package`` is looked for first; empty: where the process
            is.

    Raises:
        ContractBroken: With the first rule that it breaks.
    """
    subject = Subject(name_of(game))
    reference = reference_of(game)
    rule = "it must be a class with reset, decisions and step"
    found = subject.made(find_game, rule, reference, launch_directory=launch_directory or ".")
    subject.must(rule, found is not None)
    assert found is not None
    sample = sample_game(subject, reference, kwargs=kwargs, launch_directory=launch_directory)
    _check_facts(subject, found, sample)
    with subject.drawing("chance must be a function of the episode's key (arena.envs.chance)"):
        _check_games(subject, sample, num_calls=num_calls)
    if against is not None:
        _check_against(subject, sample, against, num_games=num_games)


def _check_facts(subject: Subject, game_class: BatchedGameClass, sample: SampleGame) -> None:
    spec = sample.spec
    subject.must("api must be aec or parallel", spec.api in ("aec", "parallel"), got=spec.api)
    is_unique = len(set(spec.agents)) == len(spec.agents) > 0
    subject.must("agents must be unique names", is_unique, got=spec.agents)
    has_specs = set(spec.agent_specs) == set(spec.agents)
    rule = "agent_specs must have every agent, and no other"
    subject.must(rule, has_specs, got=sorted(spec.agent_specs))
    with subject.obeying("it must be made as Class(num_games, device=..., **kwargs)"):
        groups = game_class(1, device=torch.device("cpu"), **spec.kwargs).groups
    grouped = sorted(agent for group in groups for agent in group)
    rule = "groups must have every agent once"
    subject.must(rule, grouped == sorted(spec.agents), got=groups)
    for group in groups:
        is_equal = all(spec.agent_specs[one] == spec.agent_specs[group[0]] for one in group)
        subject.must("agents of a group must have equal spaces", is_equal, got=group)


def _check_games(subject: Subject, sample: SampleGame, *, num_calls: int) -> None:
    """Play games at once, again, and one alone: each must be the same game."""
    seeds = [11 * number + 1 for number in range(NUM_GAMES)]
    played: list[Actions] = []
    turns: list[Turn] = []
    with closing(sample.make(num_envs=NUM_GAMES)) as env:
        for turn, actions in _play(subject, env, sample, seeds=seeds, num_calls=num_calls):
            turns.append(_selected(turn, slice(None)))
            played.append(actions)
            _check_bounds(subject, turn, sample)
        ended = torch.stack([turn.episode_over for turn in turns]).any(dim=0)
        rule = f"a game must end within {num_calls} calls of random play"
        subject.must(rule, bool(ended.any()))
    with closing(sample.make(num_envs=NUM_GAMES)) as env:
        rule = "chance must be a function of the episode's key (arena.envs.chance)"
        _compare(subject, rule, turns, _replay(env, seeds, played), sample)
        rule = "reset must leave nothing of the games before"
        _compare(subject, rule, turns, _replay(env, seeds, played), sample)
    for number in (0, NUM_GAMES - 1):
        game = slice(number, number + 1)
        alone = [_selected(turn, game) for turn in turns]
        own = [{name: rows[game] for name, rows in one.items()} for one in played]
        with closing(sample.make(num_envs=1)) as env:
            rule = "a game must not depend on the other games of its batch"
            _compare(subject, rule, alone, _replay(env, seeds[game], own), sample)


def _play(
    subject: Subject, env: BatchedEnv, sample: SampleGame, *, seeds: Sequence[int], num_calls: int
) -> Iterator[tuple[Turn, Actions]]:
    generator = torch.Generator().manual_seed(0)
    with subject.obeying("reset and decisions must keep the form of arena.envs.batched.game"):
        turn = env.reset(seeds)
    for _ in range(num_calls):
        actions = random_legal_actions(turn, actions=sample.actions, generator=generator)
        # Actions are cloned, because the tensors of a turn are valid only until the next step.
        yield turn, {name: rows.clone() for name, rows in actions.items()}
        with subject.obeying("step must take legal actions and keep the form of StepResult"):
            turn = env.step(actions)
        _check_results(subject, turn)


def _check_results(subject: Subject, turn: Turn) -> None:
    rule = "reward must be float32 [games, agents]"
    is_right = turn.reward.dtype == torch.float32 and turn.reward.shape == turn.terminated.shape
    subject.must(rule, is_right, found=f"{turn.reward.dtype} {list(turn.reward.shape)}")
    for name in ("terminated", "truncated"):
        flags: torch.Tensor = getattr(turn, name)
        subject.must(f"{name} must be bool", flags.dtype == torch.bool, got=flags.dtype)


def _check_bounds(subject: Subject, turn: Turn, sample: SampleGame) -> None:
    for name, group in turn.groups.items():
        rows = group.observation[group.agent_index >= 0]
        space = sample.facts(name).observation
        rule = f"observations of {name} must be within their space"
        subject.must(rule, _is_within(rows, space), got=rows[:1].tolist())


def _is_within(rows: torch.Tensor, space: SpaceJson) -> bool:
    """Return whether rows are within a Box; those of other spaces are not looked at."""
    if space["kind"] != "Box":
        return True
    low, high = (np.array(space[end], dtype=np.float64).reshape(-1) for end in ("low", "high"))
    numbers = rows.double().numpy()
    return bool((numbers >= low).all() and (numbers <= high).all())


def _replay(env: BatchedEnv, seeds: Sequence[int], played: Sequence[Actions]) -> Iterator[Turn]:
    turn = env.reset(seeds)
    for actions in played:
        yield turn
        turn = env.step(actions)


def _compare(
    subject: Subject,
    rule: str,
    expected: Sequence[Turn],
    found: Iterator[Turn],
    sample: SampleGame,
) -> None:
    with subject.obeying(rule):
        for call, (one, other) in enumerate(zip(expected, found, strict=True)):
            difference = first_difference(
                one, other, agents=sample.spec.agents, populations=sample.populations
            )
            told = f"another {difference.what} in call {call}" if difference else ""
            subject.must(rule, difference is None, found=told)


def _selected(turn: Turn, games: slice) -> Turn:
    """Return a copy of some games of a turn."""
    return turn.mapped(lambda tensor: tensor[games].clone())


def _check_against(subject: Subject, sample: SampleGame, against: str, *, num_games: int) -> None:
    one, other = (
        EnvironmentRequest(
            name, kwargs=sample.spec.kwargs, launch_directory=sample.launch_directory
        )
        for name in (sample.spec.id, against)
    )
    rule = f"it must be the same game as {against}"
    report = subject.made(check_against, rule, one, other, num_games=num_games, num_envs=64)
    if (difference := report.difference) is not None:
        found = (
            f"{difference.what} {difference.one!r} instead of {difference.other!r} after the "
            f"actions {[dict(action) for action in difference.actions]}"
        )
        subject.must(rule, False, found=found)
