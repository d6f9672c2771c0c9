"""Environments in other processes against the same ones here: every bit of every turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import pytest
import torch

from arena.environment_spec import EnvironmentSpec
from arena.envs.base import BatchedEnv, Phase, Told, Turn
from arena.envs.checks.conformance import compare_environments
from arena.envs.describe import populations_of
from arena.envs.make import make_batched_env
from arena.envs.one_by_one.steppers import EnvsRequest
from arena.envs.random_play import action_layouts, random_legal_actions
from arena.envs.workers.envs import EnvWorkers
from arena.errors import ConfigError, EnvironmentFault
from tests.arena.samples import facts_of, make_env, make_request

NUM_ENVS = 5
NUM_STEPS = 60
SEEDS = (5, 2**63 - 1, 11, 3, 8)

Workers = Mapping[int, EnvWorkers]


@dataclass(kw_only=True)
class Game:
    """An environment, and what is wanted of it."""

    id: str
    kwargs: Mapping[str, object] = field(default_factory=dict)
    inspected: Mapping[str, object] | None = None
    reward_weights: Mapping[str, float] = field(default_factory=dict)
    reads_state: bool = False
    has_agent_ids: bool = False

    @property
    def name(self) -> str:
        return f"{self.id}-{self.kwargs.get('fault', '')}"

    @cached_property
    def spec(self) -> EnvironmentSpec:
        kwargs = self.kwargs if self.inspected is None else self.inspected
        return facts_of(self.id, kwargs, reads_state=self.reads_state)

    def request(self) -> EnvsRequest:
        return make_request(
            replace(self.spec, kwargs=dict(self.kwargs)),
            num_envs=NUM_ENVS,
            config={"backend": "pettingzoo", "reward_weights": dict(self.reward_weights)},
            reads_state=self.reads_state,
            agent_ids=tuple(populations_of(self.spec)) if self.has_agent_ids else (),
        )


def faulty(game: str, fault: str, *, share: float = 0.15) -> Game:
    kwargs = {"fault": fault, "share": share}
    return Game(id=f"faulty:{game}", kwargs=kwargs, inspected={**kwargs, "share": 0.0})


GAMES = [
    Game(id="classic/tictactoe-v3"),
    Game(id="mpe2.simple_tag_v3:env", kwargs={"max_cycles": 6}, has_agent_ids=True),
    Game(
        id="mpe2/simple_spread_v3",
        kwargs={"max_cycles": 8, "continuous_actions": True},
        reads_state=True,
    ),
    Game(id="own_figures:FiguresInTurns", kwargs={"crowd": 40}),
    Game(id="reward_parts:PartsInTurns", reward_weights={"near": 1.0, "win": 2.0}),
    Game(id="environments:ScriptedParallel", kwargs={"script": [{"hide": ["b"]}, {}, {}]}),
    Game(id="environments:MaskedTurns", kwargs={"where": "info"}),
    *(
        faulty(game, fault)
        for game in ("Rounds", "turns")
        for fault in ("step_raises", "reset_raises", "nan_reward", "wrong_shape", "empty_mask")
    ),
]


@contextmanager
def twins(game: Game, workers: EnvWorkers) -> Iterator[tuple[BatchedEnv, BatchedEnv]]:
    """The environments here, and the same ones in workers."""
    with (
        closing(make_batched_env(game.request())) as here,
        closing(make_batched_env(game.request(), workers=workers)) as there,
    ):
        yield here, there


def bits(turn: Turn) -> dict[str, object]:
    """All of a turn, numbers as bytes: what is undefined as well."""
    found: dict[str, object] = {"figures": list(turn.figures)}
    for name, group in turn.groups.items():
        for one in fields(group):
            found[f"{name}.{one.name}"] = getattr(group, one.name)
    found |= {f"final {name}": value for name, value in turn.final_observation.items()}
    for one in fields(turn):
        if one.name not in ("groups", "final_observation", "figures"):
            found[one.name] = getattr(turn, one.name)
    return {
        name: (value.dtype, value.shape, value.numpy().tobytes())
        if isinstance(value, torch.Tensor)
        else value
        for name, value in found.items()
    }


def drawn(game: Game, seed: int = 1) -> Callable[[Turn], dict[str, torch.Tensor]]:
    """Random legal actions."""
    spec = game.spec
    actions = action_layouts(spec, populations=populations_of(spec))
    generator = torch.Generator().manual_seed(seed)
    return lambda turn: random_legal_actions(turn, actions=actions, generator=generator)


def noting(told: list[str]) -> Callable[[EnvironmentFault], None]:
    return lambda fault: told.append(str(fault))


@pytest.mark.parametrize(
    ("game", "num_workers"),
    [*((game, 2) for game in GAMES), (GAMES[1], 1), (GAMES[1], 3)],
    ids=lambda value: value if isinstance(value, int) else value.name,
)
def test_every_bit_is_the_same(game: Game, num_workers: int, env_workers: Workers) -> None:
    faults: list[list[str]] = [[], []]
    makes = [
        make_batched_env(
            game.request(),
            workers=workers,
            on_fault=noting(told),
        )
        for workers, told in zip((None, env_workers[num_workers]), faults, strict=True)
    ]
    draw = drawn(game)
    with closing(makes[0]) as here, closing(makes[1]) as there:
        for _ in range(2):
            turns = [here.reset(SEEDS), there.reset(SEEDS)]
            assert bits(turns[0]) == bits(turns[1])
            for step in range(NUM_STEPS):
                if step in (7, 20):
                    halted = torch.tensor([True, False, True, False, True])
                    for env in (here, there):
                        env.halt(halted)
                    assert bits(turns[0]) == bits(turns[1])
                if step in (13, 33):
                    for env in (here, there):
                        env.resume(torch.tensor([True, False, False, False, False]))
                        env.resume(torch.tensor([False, False, False, False, True]))
                chosen = draw(turns[0])
                turns = [here.step(chosen), there.step(chosen)]
                assert bits(turns[0]) == bits(turns[1])
    assert sorted(faults[0]) == sorted(faults[1])
    assert bool(faults[0]) == ("fault" in game.kwargs)


def play_until_it_is_too_much(
    env: BatchedEnv, draw: Callable[[Turn], Any], *, seeds: Sequence[int] = SEEDS
) -> None:
    turn = env.reset(seeds)
    for _ in range(1000):
        turn = env.step(draw(turn))


@pytest.mark.parametrize("tolerates", [False, True])
@pytest.mark.parametrize(
    "fault", ["step_raises", "reset_raises", "nan_observation", "agent_missing"]
)
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_the_fault_that_is_too_much_is_the_same(
    fault: str, share: float, tolerates: bool, env_workers: Workers
) -> None:
    game = faulty("Rounds", fault, share=share)
    told: list[list[str]] = [[], []]
    raised = []
    for workers, seen in zip((None, env_workers[2]), told, strict=True):
        on_fault = None
        if tolerates:
            on_fault = lambda fault, seen=seen: seen.append(str(fault))  # noqa: E731
        env = make_batched_env(game.request(), workers=workers, on_fault=on_fault)
        with closing(env), pytest.raises(EnvironmentFault) as caught:
            play_until_it_is_too_much(env, drawn(game))
        raised.append(str(caught.value))
    assert raised[0] == raised[1]
    assert told[0] == told[1]
    assert ("episodes were void beside" in raised[0]) == tolerates


def test_episodes_that_end_behind_a_fault_do_not_count_for_it(env_workers: Workers) -> None:
    """Where the first share breaks in the very call in which episodes of the second one end."""
    game = faulty("Rounds", "reset_raises", share=0.5)
    for first in range(0, 100, 10):
        texts = []
        for workers in (None, env_workers[2]):
            env = make_batched_env(game.request(), workers=workers, on_fault=lambda fault: None)
            with closing(env), pytest.raises(EnvironmentFault) as caught:
                play_until_it_is_too_much(env, drawn(game), seeds=range(first, first + NUM_ENVS))
            texts.append(str(caught.value))
        assert texts[0] == texts[1]


def test_the_check_of_twins_finds_no_difference(env_workers: Workers) -> None:
    game = Game(id="classic/connect_four-v3")
    spec = game.spec
    populations = populations_of(spec)
    with twins(game, env_workers[2]) as (here, there):
        report = compare_environments(
            here,
            there,
            populations=populations,
            actions=action_layouts(spec, populations=populations),
            num_games=30,
            seed=7,
        )
    assert report.difference is None
    assert report.games >= 30


def test_environments_are_told_the_same(env_workers: Workers) -> None:
    def phase(agent_steps: int, player: str) -> Phase:
        return Phase(name="training", agent_steps=agent_steps, players={"a": player, "b": "x"})

    game = Game(id="told:shown")
    draw = drawn(game)
    with twins(game, env_workers[2]) as (here, there):
        before: list[Phase] = []
        seen = set()
        for assignment in range(3):
            new = [phase(assignment, "me"), phase(assignment + 5, "another")]
            phases = [new[b % 2] for b in range(NUM_ENVS)]
            if before:
                # An environment whose phase has not changed is not called again.
                phases[2] = before[2]
            for env in (here, there):
                assert isinstance(env, Told)
                env.tell(phases)
            before = phases
            turns = [here.reset(SEEDS), there.reset(SEEDS)]
            for _ in range(9):
                assert bits(turns[0]) == bits(turns[1])
                seen |= set(map(tuple, turns[0].groups["a"].observation[2, 0:1].tolist()))
                chosen = draw(turns[0])
                turns = [here.step(chosen), there.step(chosen)]
    assert seen == {(1.0, 2.0)}, "it was told once"


def test_an_environment_that_does_not_close_says_so(env_workers: Workers) -> None:
    game = faulty("Rounds", "close_raises", share=1.0)
    env = make_batched_env(game.request(), workers=env_workers[2])
    env.reset(SEEDS)
    with pytest.raises(EnvironmentFault, match=r"in close, .* raised RuntimeError: it does not"):
        env.close()


def test_an_environment_that_cannot_be_made_is_refused_as_here(env_workers: Workers) -> None:
    game = Game(id="mpe2/simple_spread_v3", kwargs={"N": 4}, inspected={"N": 3})
    texts = []
    for workers in (None, env_workers[2]):
        with pytest.raises(ConfigError, match="must have the agents") as caught:
            make_batched_env(game.request(), workers=workers)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    # The processes can still be used.
    with twins(Game(id="classic/rps-v2"), env_workers[2]) as (here, there):
        assert bits(here.reset(SEEDS)) == bits(there.reset(SEEDS))


def test_a_batched_game_is_refused(env_workers: Workers) -> None:
    game = Game(id="classic/tictactoe-v3")
    with pytest.raises(ConfigError, match="num_env_workers must be 0 where classic/tictactoe-v3"):
        make_env(game.spec, num_envs=NUM_ENVS, workers=env_workers[2])
