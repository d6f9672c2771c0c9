"""Random play of one environment to measure its pace. Runs in the child of `arena.envs.inspect`.

The environment is stepped as a learner steps it, which goes on after a breach of contract; `arena
envs check` says more about it. Torch-free except for a user's own batched game: importing torch
takes longer than most plays.

Tests: `tests/arena/envs/probe/test_play.py`, `tests/arena/envs/checks/test_time_limit.py`.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from arena.environment_spec import EnvironmentSpec
from arena.envs import chance
from arena.envs.batched.find import find_game, names_code
from arena.envs.describe import populations_of
from arena.envs.one_by_one.steppers import make_bare_stepper
from arena.envs.openspiel.game import is_openspiel, load_game
from arena.envs.openspiel.stepper import OpenSpielStepper
from arena.envs.pettingzoo.buffers import Buffers
from arena.envs.pettingzoo.episode import EpisodeRow, Stepper
from arena.envs.pettingzoo.pending_decisions import NO_DECISION
from arena.envs.probe.pace import Pace, Stakes
from arena.envs.registry import TWINS, make_environment
from arena.errors import EnvironmentFault
from arena.processes.machine_memory import machine_bytes
from arena.spaces import ActionLayout
from arena.users_code import pass_interrupt, raised

SEED = 7

MAX_S = 3.0
ENOUGH_S = 1.5
FEW_S, MANY_EPISODES = 0.3, 8
"""Seconds of play.

Play ends after `MAX_S`, or with the episode that ends after `ENOUGH_S`, or after `FEW_S` if it is
at least the 8th. Short episodes thus cost a launch nothing, and of long ones whole ones count.
"""

MAX_STEPS = 2000
ENOUGH_STEPS = 1000
"""Steps of play in a deterministic run, where no clock may decide.

Everything but the seconds of a step is then equal on every machine. 2,000 steps of 5 ms are 10 s;
episodes longer than that lead to the same number of environments.
"""

MAX_FAULTS = 8
"""Episodes in a row that may break before the measurement ends."""

MAX_OBJECTS = 8
MAX_OBJECTS_S = 1.0
MAX_OBJECTS_BYTES = 512 << 20
"""Limits of the environments made to measure the growth of memory."""


class RandomActing:
    """Source of actions for agents of one environment, each legal choice equally likely.

    Args:
        spec: Environment's spec.
        seed: Seed of all draws.

    Attributes:
        layouts: Layout of each agent's actions.
    """

    def __init__(self, spec: EnvironmentSpec, *, seed: int) -> None:
        self.layouts = {
            # Draws are within their bounds already, which "clipped" leaves as they are.
            agent: ActionLayout.from_json(facts.action, continuous="clipped")
            for agent, facts in spec.agent_specs.items()
        }
        self._rng = np.random.default_rng(seed)

    def draw(self, agent: str, legal: npt.NDArray[np.bool_] | None) -> Any:  # noqa: ANN401
        """Draw a legal action (bool [n]; None: all are legal)."""
        layout = self.layouts[agent]
        legal = np.ones(layout.num_logits, dtype=np.bool_) if legal is None else legal
        return layout.one_by_one(layout.uniform(legal[None], self._rng))[0]


def find_pace(
    spec: EnvironmentSpec,
    *,
    launch_directory: str,
    backend: str,
    reads_state: bool,
    deterministic: bool,
) -> Pace:
    """Measure an environment by random play.

    Args:
        spec: Environment's spec.
        launch_directory: Directory put first on ``sys.path``.
        backend: ``environment.backend``.
        reads_state: Whether a value network reads ``state()``.
        deterministic: Whether the number of steps limits the play, not the clock.

    Raises:
        EnvironmentFault: If it breaks again and again before an episode has ended.
    """
    is_own_game = names_code(spec.id) and (
        find_game(spec.id, launch_directory=launch_directory) is not None
    )
    has_game = is_own_game or spec.id in TWINS
    stakes, env_bytes, known_margin = Stakes(), 0, 0.0
    if is_openspiel(spec.id):
        game = load_game(spec.id, spec.kwargs).game
        # m = (max u - min u) / 2
        known_margin = (game.max_utility() - game.min_utility()) / 2.0
    elif not is_own_game:
        env_bytes = _bytes_of_one(
            spec, launch_directory=launch_directory, deterministic=deterministic
        )
    play = _steps_of_game if is_own_game else _steps_one_by_one
    steps = play(spec, stakes, launch_directory=launch_directory)
    length, is_lower_bound, step_s = _played(steps, deterministic=deterministic)
    # A game may declare no bounds: utilities are infinite then.
    is_margin_known = 0.0 < known_margin < math.inf
    return Pace(
        episode_length=length,
        is_lower_bound=is_lower_bound,
        step_s=step_s,
        env_bytes=env_bytes,
        # `arena.envs.make` decides alike, unless the game refuses an option.
        is_batched=has_game and backend != "pettingzoo" and not reads_state,
        machine_bytes=machine_bytes(),
        largest_margin=known_margin if is_margin_known else stakes.largest_margin,
        is_margin_known=is_margin_known,
        has_stakes=not stakes.is_plain,
    )


def _played(steps: Iterator[bool], *, deterministic: bool) -> tuple[float, bool, float]:
    """Return the steps of an episode, whether they are a lower bound, and the seconds of a step."""
    num_steps = num_episodes = 0
    began, spent_s = time.perf_counter(), 0.0
    try:
        for is_over in steps:
            spent_s = time.perf_counter() - began
            num_steps += 1
            num_episodes += is_over
            if deterministic:
                enough = num_steps >= (ENOUGH_STEPS if is_over else MAX_STEPS)
            elif is_over:
                enough = spent_s >= (FEW_S if num_episodes >= MANY_EPISODES else ENOUGH_S)
            else:
                enough = spent_s >= MAX_S
            if enough:
                break
    except BaseException as error:
        pass_interrupt(error)
        # A user's code may raise anything; episodes played until then still count.
        if not num_episodes:
            what = f"step {num_steps + 1} of random play"
            raise EnvironmentFault(raised(what, error)) from error
    return num_steps / max(num_episodes, 1), not num_episodes, spent_s / num_steps


def _steps_one_by_one(
    spec: EnvironmentSpec, stakes: Stakes, *, launch_directory: str
) -> Iterator[bool]:
    """Play for ever, stepping as a batch does; after each step, yield whether its episode is
    over.
    """

    def score(returns: Mapping[str, float], _: object) -> tuple[float, ...]:
        stakes.end_episode(returns.values())
        return tuple(returns.values())

    populations = populations_of(spec)

    def make() -> tuple[Stepper, Buffers]:
        buffers = Buffers(spec, populations=populations, num_envs=1, num_sides=len(spec.agents))
        row = EpisodeRow(buffers, b=0, score=score, keeps_infos=False)
        if is_openspiel(spec.id):
            return OpenSpielStepper(load_game(spec.id, spec.kwargs), row=row), buffers
        env = make_environment(
            spec.id, kwargs=spec.kwargs, api=spec.api, launch_directory=launch_directory
        )
        return make_bare_stepper(env, row, spec=spec), buffers

    (stepper, buffers), acting, num_faults = make(), RandomActing(spec, seed=SEED), 0
    for episode in count():
        try:
            stepper.start(chance.episode_seed(SEED, episode=episode))
            yield from _episode(stepper, buffers, acting, agents=spec.agents)
            num_faults = 0
        except EnvironmentFault:
            num_faults += 1
            # Learners go on with a new environment after one that broke.
            if num_faults == MAX_FAULTS:
                raise
            stepper, buffers = make()


def _episode(
    stepper: Stepper, buffers: Buffers, acting: RandomActing, *, agents: Sequence[str]
) -> Iterator[bool]:
    """Play an episode that has started; after each step, yield whether it is over."""
    is_over = False
    while not is_over:
        buffers.write()
        actions: dict[str, list[Any]] = {
            name: [
                None if index == NO_DECISION else acting.draw(agents[index], legal)
                for index, legal in zip(asked.agent_index[0], asked.action_mask[0], strict=True)
            ]
            for name, asked in buffers.populations.items()
        }
        buffers.clear()
        is_over = stepper.step(actions)
        yield is_over


def _steps_of_game(
    spec: EnvironmentSpec, stakes: Stakes, *, launch_directory: str
) -> Iterator[bool]:
    """Play a user's batched game for ever; after each step, yield whether its episode is over."""
    # Its facts have imported torch already.
    import torch

    from arena.envs.make import PlainEnvs
    from arena.envs.random_play import random_turns

    plain = PlainEnvs(spec=spec, launch_directory=launch_directory)
    env = plain.make(num_envs=1)
    generator = torch.Generator().manual_seed(SEED)
    turns = random_turns(env, seeds=[SEED], actions=plain.actions, generator=generator)
    returns = np.zeros(len(env.agents))
    # The first turn is that of the reset.
    for turn, _ in islice(turns, 1, None):
        returns += turn.reward[0].numpy()
        if is_over := bool(turn.episode_over[0]):
            stakes.end_episode(returns.tolist())
            returns[:] = 0.0
        yield is_over


def _bytes_of_one(spec: EnvironmentSpec, *, launch_directory: str, deterministic: bool) -> int:
    """Return the growth of the process per further environment; 0: too little to be measured."""
    process = psutil.Process()
    kept: list[Any] = []
    # Garbage that is freed later would hide the growth.
    gc.collect()
    before = process.memory_info().rss
    grown, began = [0], time.perf_counter()
    for seed in range(1 + MAX_OBJECTS):
        env = make_environment(
            spec.id, kwargs=spec.kwargs, api=spec.api, launch_directory=launch_directory
        )
        env.reset(seed=seed)
        # The environment is kept, so that the next one cannot use its memory again.
        kept.append(env)
        grown.append(process.memory_info().rss - before)
        # No clock may decide in a deterministic run; the bytes still limit it.
        is_late = not deterministic and time.perf_counter() - began > MAX_OBJECTS_S
        if is_late or grown[-1] > MAX_OBJECTS_BYTES:
            break
    for env in kept:
        # Closing is not measured.
        with contextlib.suppress(Exception):
            env.close()
    # The first environment brings what all share, if there are more.
    first = min(1, len(kept) - 1)
    # bytes = (rss_n - rss_1) / (n - 1)
    return max(0, (grown[-1] - grown[first]) // (len(kept) - first))
