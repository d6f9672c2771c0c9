"""Random play of one environment to measure its pace. Runs in the child of `arena.envs.inspect`.

Play steps as a learner does, so that a step costs what it will cost there. A breach of contract
ends it, and the episodes before count: it is the matter of `arena envs check` and of learners, and
no launch is refused for one. Torch-free except for a user's own batched game: importing torch takes
longer than most plays.

Tests: `tests/arena/envs/probe/test_play.py`, `tests/arena/envs/checks/test_time_limit.py`.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from arena.environment_spec import EnvironmentSpec
from arena.envs.batched.find import find_game, names_code
from arena.envs.one_by_one.envs import ToleratedFaults
from arena.envs.one_by_one.steppers import make_one_by_one, make_rows, plain_request
from arena.envs.openspiel.game import is_openspiel, load_game
from arena.envs.pettingzoo.pending_decisions import NO_DECISION, PendingDecisions
from arena.envs.probe.pace import Pace, Stakes
from arena.envs.registry import TWINS, make_of_spec
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
        agents: Agents that may act.
        layouts: Layout of each agent's actions.
    """

    def __init__(self, spec: EnvironmentSpec, *, seed: int) -> None:
        self.agents = spec.agents
        self.layouts = {
            # "clipped", as draws are bounded already and squashing would move them
            agent: ActionLayout.from_json(facts.action, continuous="clipped")
            for agent, facts in spec.agent_specs.items()
        }
        self._rng = np.random.default_rng(seed)

    def draw(self, agent: str, legal: npt.NDArray[np.bool_] | None) -> Any:  # noqa: ANN401
        """Draw an action in the environment's own form, legal (bool [n]; None: all are)."""
        return self.layouts[agent].actions(self.row(agent, legal)[None])[0]

    def rows(self, population: PendingDecisions) -> npt.NDArray[Any]:
        """Draw actions for what one environment asks. int64 [1, S] or float32 [1, S, K]."""
        layout, masks = population.actions, population.action_mask[0]
        shape = (*population.agent_index.shape, *layout.row_shape)
        rows = np.zeros(shape, layout.row_dtype)
        for slot, column in enumerate(population.agent_index[0].tolist()):
            if column != NO_DECISION:
                legal = masks[slot] if population.mask is not None else None
                rows[0, slot] = self.row(self.agents[column], legal)
        return rows

    def row(self, agent: str, legal: npt.NDArray[np.bool_] | None) -> npt.NDArray[Any]:
        """Draw a legal action. int64 [] or float32 [K]."""
        layout = self.layouts[agent]
        choices = self._choices(layout, legal)
        if layout.is_discrete:
            return np.array(choices[0], dtype=np.int64)
        # A row has the choices first, then the numbers.
        return np.concatenate([choices, self._numbers(layout)]).astype(np.float32)

    def _choices(self, layout: ActionLayout, legal: npt.NDArray[np.bool_] | None) -> list[int]:
        chosen, first = [], 0
        for number in layout.branches:
            if legal is None:
                chosen.append(int(self._rng.integers(number)))
            else:
                # Indices within the branch, as a row's choices are.
                chosen.append(int(self._rng.choice(np.flatnonzero(legal[first : first + number]))))
            first += number
        return chosen

    def _numbers(self, layout: ActionLayout) -> npt.NDArray[np.float64]:
        """Draw numbers: uniform within two bounds, normal beside one, standard normal
        without any.
        """
        low, high = np.array(layout.low), np.array(layout.high)
        share, normal = self._rng.random(len(low)), self._rng.standard_normal(len(low))
        bounded_low, bounded_high = np.isfinite(low), np.isfinite(high)
        # One bound: l + |z| or h - |z|; none: z.
        numbers = np.where(bounded_low, np.where(bounded_low, low, 0.0) + np.abs(normal), normal)
        only_high = bounded_high & ~bounded_low
        numbers[only_high] = high[only_high] - np.abs(normal[only_high])
        both = bounded_low & bounded_high
        # Numbers are interpolated, because the difference of the bounds may exceed a float.
        numbers[both] = (1.0 - share[both]) * low[both] + share[both] * high[both]
        return numbers


def find_pace(
    spec: EnvironmentSpec,
    *,
    launch_directory: str,
    backend: str,
    reads_state: bool,
    deterministic: bool,
    possible_agents: Sequence[str] | None = None,
) -> Pace:
    """Measure an environment by random play.

    Args:
        spec: Environment's spec.
        launch_directory: Directory put first on ``sys.path``.
        backend: ``environment.backend``.
        reads_state: Whether a value network reads ``state()``.
        deterministic: Whether the number of steps limits the play, not the clock.
        possible_agents: ``environment.possible_agents``.

    Raises:
        EnvironmentFault: If it breaks before an episode has ended.
    """
    is_own_game = names_code(spec.id) and (
        find_game(spec.id, launch_directory=launch_directory) is not None
    )
    has_game = is_own_game or spec.id in TWINS
    stakes, known_margin = Stakes(spec.agents), 0.0
    # A generator: the game is not made unless its first step is asked for.
    env_bytes, steps = 0, _steps_of_game(spec, stakes, launch_directory=launch_directory)
    if not is_own_game:
        steps = _steps_one_by_one(
            spec,
            stakes,
            launch_directory=launch_directory,
            possible_agents=possible_agents,
        )
    if is_openspiel(spec.id):
        game = load_game(spec.id, spec.kwargs).game
        # m = (max u - min u) / 2
        known_margin = (game.max_utility() - game.min_utility()) / 2.0
    elif not is_own_game:
        env_bytes = _bytes_of_one(
            spec, launch_directory=launch_directory, deterministic=deterministic
        )
    length, is_lower_bound, step_s = _played(steps, stakes, deterministic=deterministic)
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


def _played(
    steps: Iterator[bool], stakes: Stakes, *, deterministic: bool
) -> tuple[float, bool, float]:
    """Return the steps of an episode, whether they are a lower bound, and the seconds of a step."""
    num_steps = num_episodes = 0
    began, spent_s = time.perf_counter(), 0.0
    try:
        for is_over in steps:
            spent_s = time.perf_counter() - began
            num_steps += 1
            if is_over:
                num_episodes += 1
                stakes.end_episode()
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
            # The stepper has put its place before the user's error, which is told with this one.
            cause = error.__cause__ or error
            raise EnvironmentFault(raised(what, cause)) from error
    return num_steps / max(num_episodes, 1), not num_episodes, spent_s / num_steps


def _steps_one_by_one(
    spec: EnvironmentSpec,
    stakes: Stakes,
    *,
    launch_directory: str,
    possible_agents: Sequence[str] | None,
) -> Iterator[bool]:
    """Play for ever as a learner steps; after each step, yield whether its episode is over."""
    request = plain_request(
        spec,
        num_envs=1,
        launch_directory=launch_directory,
        possible_agents=possible_agents,
        # Draws are bounded already, and squashing would move them.
        continuous_actions="clipped",
    )
    buffers, acting = make_rows(request), RandomActing(spec, seed=SEED)
    # A margin of 1.25 must not become one of 1.2500000596.
    buffers.reward = np.zeros(buffers.reward.shape)
    envs = make_one_by_one(request, buffers, faults=ToleratedFaults(None), on_step=None)
    envs.reset([SEED])
    while True:
        envs.step({name: acting.rows(asked) for name, asked in buffers.populations.items()})
        stakes.credit(dict(zip(buffers.agents, buffers.reward[0].tolist(), strict=True)))
        yield bool(buffers.episode_over[0])


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
    # The first turn is that of the reset.
    for turn, _ in islice(turns, 1, None):
        stakes.credit(dict(zip(env.agents, turn.reward[0].tolist(), strict=True)))
        yield bool(turn.episode_over[0])


def _bytes_of_one(spec: EnvironmentSpec, *, launch_directory: str, deterministic: bool) -> int:
    """Return the growth of the process per further environment; 0: too little to be measured."""
    process = psutil.Process()
    kept: list[Any] = []
    # Garbage that is freed later would hide the growth.
    gc.collect()
    before = process.memory_info().rss
    grown, began = [0], time.perf_counter()
    for seed in range(1 + MAX_OBJECTS):
        env = make_of_spec(spec, launch_directory=launch_directory)
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
