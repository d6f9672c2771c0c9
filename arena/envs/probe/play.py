"""Random play of one environment to measure its pace. Runs in the child of `arena.envs.inspect`.

Play uses PettingZoo's or OpenSpiel's own interface, not the learners' steppers: `arena envs check`
and learners detect broken contracts, and a launch must not be refused for one. Torch-free except
for a user's own batched game: importing torch takes longer than most plays.

Tests: `tests/arena/envs/probe/test_play.py`, `tests/arena/envs/checks/test_time_limit.py`.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Iterator, Mapping
from itertools import count, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.envs import chance
from arena.envs.batched.find import find_game, names_code
from arena.envs.openspiel.game import is_openspiel, load_game
from arena.envs.openspiel.stepper import chance_outcome
from arena.envs.probe.pace import Pace, Stakes
from arena.envs.registry import TWINS, make_of_spec
from arena.envs.spaces.masks import flatten_mask
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
at least the 8th. Short episodes thus cost a launch almost no time, and long ones are measured
whole.
"""

MAX_STEPS = 2000
ENOUGH_STEPS = 1000
"""Steps of play in a deterministic run, which must not depend on a clock.

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
        layouts: Layout of each agent's actions.
    """

    def __init__(self, spec: EnvironmentSpec, *, seed: int) -> None:
        self._specs = spec.agent_specs
        self.layouts = {
            # Draws are within bounds already, and squashing would move them, so "clipped" is used.
            agent: ActionLayout.from_json(facts.action, continuous="clipped")
            for agent, facts in spec.agent_specs.items()
        }
        self._rng = np.random.default_rng(seed)

    @property
    def agents(self) -> tuple[str, ...]:
        """Agents that may act."""
        return tuple(self._specs)

    def act(self, agent: str, observation: Any, info: Mapping[str, Any] | None) -> Any:  # noqa: ANN401
        """Draw one action.

        Raises:
            EnvironmentFault: If the mask allows none.
            ValueError: If the mask is invalid.
        """
        layout = self.layouts[agent]
        mask = _mask(self._specs[agent], observation, info)
        # By PettingZoo's rule, a missing mask in infos allows everything.
        legal = None if mask is None else flatten_mask(layout, mask)
        if legal is not None and not layout.allows(legal[None])[0]:
            raise EnvironmentFault(f"agent {agent!r}: an action mask must allow an action")
        return self.draw(agent, legal)

    def draw(self, agent: str, legal: npt.NDArray[np.bool_] | None) -> Any:  # noqa: ANN401
        """Draw a legal action (bool [n]; None: all are legal)."""
        layout = self.layouts[agent]
        choices = self._choices(layout, legal)
        if layout.is_discrete:
            return layout.actions(np.array(choices, dtype=np.int64))[0]
        # A row has the choices first, then the numbers.
        row = np.concatenate([choices, self._numbers(layout)]).astype(np.float32)
        return layout.actions(row[None])[0]

    def _choices(self, layout: ActionLayout, legal: npt.NDArray[np.bool_] | None) -> list[int]:
        chosen, first = [], 0
        for number in layout.branches:
            if legal is None:
                chosen.append(int(self._rng.integers(number)))
            else:
                # A row holds indices within the branch.
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
        # One bound: l + |z| or h - |z|; no bound: z.
        numbers = np.where(bounded_low, np.where(bounded_low, low, 0.0) + np.abs(normal), normal)
        only_high = bounded_high & ~bounded_low
        numbers[only_high] = high[only_high] - np.abs(normal[only_high])
        both = bounded_low & bounded_high
        # Numbers are interpolated, because the difference of the bounds may overflow.
        numbers[both] = (1.0 - share[both]) * low[both] + share[both] * high[both]
        return numbers


def _mask(spec: AgentSpec, observation: Any, info: Mapping[str, Any] | None) -> object:  # noqa: ANN401
    if spec.mask is None:
        return None
    # Both "observation" and "beside" have the mask in the observation.
    holder = (info or {}) if spec.mask == "info" else observation
    mask: object = holder.get("action_mask")
    return mask


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
        EnvironmentFault: If the environment breaks before an episode has ended.
    """
    is_own_game = names_code(spec.id) and (
        find_game(spec.id, launch_directory=launch_directory) is not None
    )
    has_game = is_own_game or spec.id in TWINS
    stakes, known_margin = Stakes(spec.agents), 0.0
    # The steps come from a generator, so the game is only made if its first step is requested.
    env_bytes, steps = 0, _steps_of_game(spec, stakes, launch_directory=launch_directory)
    if is_openspiel(spec.id):
        steps = _steps_of_openspiel(spec, stakes)
        game = load_game(spec.id, spec.kwargs).game
        # m = (max u - min u) / 2
        known_margin = (game.max_utility() - game.min_utility()) / 2.0
    elif not is_own_game:
        env_bytes = _bytes_of_one(
            spec, launch_directory=launch_directory, deterministic=deterministic
        )
        steps = _steps_of_pettingzoo(spec, stakes, launch_directory=launch_directory)
    length, is_lower_bound, step_s = _played(steps, stakes, deterministic=deterministic)
    # Without declared bounds, utilities are infinite.
    is_margin_known = 0.0 < known_margin < math.inf
    return Pace(
        episode_length=length,
        is_lower_bound=is_lower_bound,
        step_s=step_s,
        env_bytes=env_bytes,
        # `arena.envs.make` decides in the same way, unless the game refuses an option.
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
            raise EnvironmentFault(raised(what, error)) from error
    return num_steps / max(num_episodes, 1), not num_episodes, spent_s / num_steps


def _steps_of_pettingzoo(
    spec: EnvironmentSpec, stakes: Stakes, *, launch_directory: str
) -> Iterator[bool]:
    """Play without end; after each step, yield whether its episode is over."""
    env = make_of_spec(spec, launch_directory=launch_directory)
    episode_of = _parallel_episode if spec.api == "parallel" else _episode_in_turns
    acting = RandomActing(spec, seed=SEED)
    for episode in count():
        seed = chance.episode_seed(SEED, episode=episode)
        yield from _at_least_a_step(episode_of(env, stakes, acting=acting, seed=seed))


def _at_least_a_step(episode: Iterator[bool]) -> Iterator[bool]:
    num_steps = 0
    for num_steps, is_over in enumerate(episode, start=1):  # noqa: B007
        yield is_over
    # An environment that is over after each reset would loop for ever.
    if not num_steps:
        raise EnvironmentFault("after reset an agent must be alive")


def _parallel_episode(
    env: Any,  # noqa: ANN401
    stakes: Stakes,
    *,
    acting: RandomActing,
    seed: int,
) -> Iterator[bool]:
    observations, infos = env.reset(seed=seed)
    asked = [agent for agent in env.agents if agent in observations]
    while asked:
        actions = {
            agent: acting.act(agent, observations[agent], infos.get(agent)) for agent in asked
        }
        observations, rewards, terminations, truncations, infos = env.step(actions)
        stakes.credit(rewards)
        asked = [
            agent
            for agent in env.agents
            if agent in observations and not (terminations.get(agent) or truncations.get(agent))
        ]
        yield not asked


def _episode_in_turns(
    env: Any,  # noqa: ANN401
    stakes: Stakes,
    *,
    acting: RandomActing,
    seed: int,
) -> Iterator[bool]:
    env.reset(seed=seed)
    # Each dead agent takes one step to leave; agents that stay must not hang the play.
    patience, num_dead = 2 * len(acting.agents) + 1, 0
    while any(not _is_dead(env, agent) for agent in env.agents):
        agent = env.agent_selection
        if _is_dead(env, agent):
            num_dead += 1
            if num_dead > patience:
                raise EnvironmentFault(f"only dead agents are on turn, the last is {agent!r}")
            env.step(None)
            stakes.credit(env.rewards)
            continue
        num_dead = 0
        observation, *_, info = env.last()
        env.step(acting.act(agent, observation, info))
        stakes.credit(env.rewards)
        yield all(_is_dead(env, agent) for agent in env.agents)


def _is_dead(env: Any, agent: str) -> bool:  # noqa: ANN401
    return bool(env.terminations[agent] or env.truncations[agent])


def _steps_of_openspiel(spec: EnvironmentSpec, stakes: Stakes) -> Iterator[bool]:
    """Play without end; after each step, yield whether its game is over."""
    loaded = load_game(spec.id, spec.kwargs)
    rng = np.random.default_rng(SEED)
    while True:
        state, num_steps = loaded.game.new_initial_state(), 0
        while not state.is_terminal():
            if state.is_chance_node():
                outcomes = state.chance_outcomes()
                # Any random outcome will do, because these games are never replayed.
                state.apply_action(chance_outcome(outcomes, uniform=float(rng.random())))
                continue
            deciding = loaded.deciding(state)
            actions = {p: int(rng.choice(state.legal_actions(p))) for p in deciding}
            loaded.apply(state, actions)
            if deciding:
                num_steps += 1
                if state.is_terminal():
                    # Returns are credited once, at the end, because the game's returns are sums
                    # already.
                    stakes.credit(dict(zip(spec.agents, state.returns(), strict=True)))
                yield state.is_terminal()


def _steps_of_game(
    spec: EnvironmentSpec, stakes: Stakes, *, launch_directory: str
) -> Iterator[bool]:
    """Play a user's batched game without end; after each step, yield whether its episode is
    over.
    """
    # Reading the game's facts has imported torch already.
    import torch

    from arena.envs.make import PlainEnvs
    from arena.envs.random_play import random_turns

    plain = PlainEnvs(spec=spec, launch_directory=launch_directory)
    env = plain.make(num_envs=1)
    generator = torch.Generator().manual_seed(SEED)
    turns = random_turns(env, seeds=[SEED], actions=plain.actions, generator=generator)
    # The first turn comes from the reset and has no rewards.
    for turn, _ in islice(turns, 1, None):
        stakes.credit(dict(zip(env.agents, turn.reward[0].tolist(), strict=True)))
        yield bool(turn.episode_over[0])


def _bytes_of_one(spec: EnvironmentSpec, *, launch_directory: str, deterministic: bool) -> int:
    """Return the growth of the process per further environment; 0: too little to be measured."""
    process = psutil.Process()
    kept: list[Any] = []
    # Garbage is collected first, because freeing it later would hide the growth.
    gc.collect()
    before = process.memory_info().rss
    grown, began = [0], time.perf_counter()
    for seed in range(1 + MAX_OBJECTS):
        env = make_of_spec(spec, launch_directory=launch_directory)
        env.reset(seed=seed)
        # The environment is kept, so that the next one cannot reuse its memory.
        kept.append(env)
        grown.append(process.memory_info().rss - before)
        # A deterministic run must not depend on a clock; the limit of bytes still applies.
        is_late = not deterministic and time.perf_counter() - began > MAX_OBJECTS_S
        if is_late or grown[-1] > MAX_OBJECTS_BYTES:
            break
    for env in kept:
        # Errors of closing are ignored, because this is only a measurement.
        with contextlib.suppress(Exception):
            env.close()
    # The first environment includes one-time costs, so it is left out if there are more.
    first = min(1, len(kept) - 1)
    # bytes = (rss_n - rss_1) / (n - 1)
    return max(0, (grown[-1] - grown[first]) // (len(kept) - first))
