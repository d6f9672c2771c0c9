"""The ceiling is measured on what the learner's environments went through, no more and no less."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
import torch

from arena.envs.random_play import random_answers
from arena.envs.registry import make_environment
from arena.errors import ConfigError
from experiments.speed.ceiling import BareEnvironment, RecordedEnv, Round, measure, num_ghosts
from tools.bench.subject import Subject, load_subject

NUM_ENVS = 4
TINY = (
    f"environment.num_envs={NUM_ENVS}",
    "environment.backend=pettingzoo",
    "populations.player.hyperparameters.rollout_length=4",
)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def seen_in_batch(subject: Subject, env: RecordedEnv, *, num_steps: int) -> list[list[float]]:
    """Play at random; of each environment all that is seen after the last step."""
    (name,) = subject.setup.agents_of
    generator = torch.Generator().manual_seed(1)
    turn = env.reset(range(NUM_ENVS))
    for _ in range(num_steps):
        action = random_answers(
            turn.groups[name], layout=subject.actions[name], generator=generator
        )
        turn = env.step({name: action})
    return [row.flatten().tolist() for row in turn.groups[name].observation]


@pytest.mark.parametrize(("preset", "num_steps"), [("tictactoe", 40), ("simple_spread", 60)])
def test_bare_environments_go_where_the_batch_went(preset: str, num_steps: int) -> None:
    subject = load_subject(preset, TINY[:2])
    spec = subject.setup.spec
    with closing(RecordedEnv(subject.make_env(), subject=subject)) as env:
        expected = seen_in_batch(subject, env, num_steps=num_steps)
        actions = env.take_actions()
        assert [len(steps) for steps in actions] == [num_steps] * NUM_ENVS
        for seed, steps, seen in zip(env.seeds, actions, expected, strict=True):
            bare = make_environment(
                spec.id, kwargs=spec.kwargs, api=spec.api, launch_directory="."
            ).unwrapped
            driven = BareEnvironment(bare, seed=seed, at_once=spec.api == "parallel")
            for step in steps:
                driven.step(step)
            agents = bare.agents if spec.api == "parallel" else [bare.agent_selection]
            observations = [bare.observe(agent) for agent in agents]
            arrays = [o["observation"] if isinstance(o, dict) else o for o in observations]
            flat = np.concatenate([array.reshape(-1) for array in arrays]).astype(np.float32)
            assert flat.tolist() == seen
            driven.close()
        assert env.take_actions() == [[]] * NUM_ENVS


@pytest.mark.slow
def test_ghosts_are_those_of_the_configuration() -> None:
    pool = ("matchmaking.opponents=8", "matchmaking.latest_ratio=0.25", "matchmaking.kind=uniform")
    assert num_ghosts(load_subject("tictactoe", pool)) == 6
    assert num_ghosts(load_subject("tictactoe", ["matchmaking.kind=latest"])) == 0
    assert num_ghosts(load_subject("simple_spread", pool)) == 0


def test_the_ratio_is_of_the_times() -> None:
    assert Round(agent_steps=10, learner_s=4.0, stepping_s=2.0, update_s=1.0).ratio == 0.75


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_measurement(one_by_one: bool) -> None:
    subject = load_subject("tictactoe", [*TINY, "matchmaking.opponents=2"])
    found = measure(subject, rounds=3, num_rollouts=1, one_by_one=one_by_one)
    assert (found["rounds"], found["ghosts"], found["one_by_one"]) == (3, 1, one_by_one)
    low, middle, high = (found[key] for key in ("ratio_low", "ratio", "ratio_high"))
    assert isinstance(low, float)
    assert isinstance(middle, float)
    assert isinstance(high, float)
    assert 0 < low <= middle <= high


def test_two_populations_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"one population can be measured, got .*predator"):
        measure(load_subject("simple_tag", TINY[:1]), rounds=1, num_rollouts=1, one_by_one=False)
