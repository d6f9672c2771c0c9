"""Does an environment work here, and how fast: what ``arena envs check`` runs."""

from __future__ import annotations

import contextlib
import hashlib
import io
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from arena.config import EnvironmentConfig
from arena.envs.base import BatchedEnv, Turn
from arena.envs.batched.find import find_game, names_code
from arena.envs.batched.twins import TWINS
from arena.envs.inspect import inspect_environment
from arena.envs.make import make_batched_env
from arena.envs.openspiel import is_openspiel
from arena.envs.random_play import populations_of, random_legal_actions
from arena.envs.registry import make_environment
from arena.envs.spaces import num_actions
from arena.envs.spec import EnvironmentSpec
from arena.errors import EnvironmentFault

NUM_ENVS = 16
NUM_STEPS = 200
"""Of each run whose digests are compared."""

NUM_CONTRACT_CYCLES = 200
SEED = 7


@dataclass(slots=True, kw_only=True)
class EnvironmentReport:
    """What a check found.

    Attributes:
        spec: The environment's facts.
        episodes: Played to their ends.
        mean_length: Of these, in calls of ``step``.
        env_steps_per_s: Environments stepped per second in a batch of `NUM_ENVS`, on one core.
        agent_steps_per_s: Decisions per second.
        deterministic: Whether two runs with one seed saw the same.
        problems: What must be mended; empty if the environment works.
        notes: What PettingZoo's own test warns of.
        twin: The batched game that trains in its place, as ``package.module:Class``. What was
            checked is the environment itself.
    """

    spec: EnvironmentSpec
    episodes: int = 0
    mean_length: float | None = None
    env_steps_per_s: float = 0.0
    agent_steps_per_s: float = 0.0
    deterministic: bool = False
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    twin: str | None = None


def check_environment(
    environment_id: str,
    *,
    kwargs: Mapping[str, object],
    launch_directory: str,
    seconds: float = 2.0,
) -> EnvironmentReport:
    """Play random legal episodes and look for what would spoil training.

    Args:
        environment_id: A PettingZoo registry id, ``openspiel:game``, or ``package.module:Name`` of
            a factory or a batched game.
        kwargs: For its factory.
        launch_directory: First on ``sys.path``.
        seconds: How long the speed is measured; the rest takes a few more.

    Raises:
        ConfigError: If there is no such environment, or Arena cannot train its agents.
        EnvironmentFault: If it cannot even be reset.
    """
    spec = inspect_environment(environment_id, kwargs=kwargs, launch_directory=launch_directory)
    report = EnvironmentReport(spec=spec, twin=TWINS.get(spec.id))
    subject = _Subject(spec, launch_directory=launch_directory)
    try:
        _measure(subject, report, seconds=seconds)
        report.deterministic = _digest(subject) == _digest(subject)
    except EnvironmentFault as fault:
        report.problems.append(str(fault))
        return report
    if not report.deterministic:
        report.problems.append(
            "two runs with one seed differ: reset(seed=...) must determine all that is random"
        )
    if not subject.is_pettingzoo():
        return report
    with subject.single() as env:
        changed = _aliases(env, spec=spec)
    if changed is not None:
        report.problems.append(
            f"a returned observation of agent {changed!r} changed later: return new arrays"
        )
    with subject.single() as env:
        _contract(env, report)
    return report


class _Subject:
    """Makes what is checked."""

    def __init__(self, spec: EnvironmentSpec, *, launch_directory: str) -> None:
        self.spec = spec
        self._launch_directory = launch_directory
        self.populations = populations_of(spec)
        self._num_actions = {
            name: num_actions(spec.agent_specs[agents[0]].action)
            for name, agents in self.populations.items()
        }

    def is_pettingzoo(self) -> bool:
        """Whether there is a PettingZoo environment to look at, beside the batch."""
        environment_id = self.spec.id
        if is_openspiel(environment_id):
            return False
        # A twin is beside its original, a batched game of the user's own beside nothing.
        return not names_code(environment_id) or (
            find_game(environment_id, launch_directory=self._launch_directory) is None
        )

    @contextlib.contextmanager
    def batch(self) -> Iterator[BatchedEnv]:
        """A batch of `NUM_ENVS`."""
        spec = self.spec
        env = make_batched_env(
            EnvironmentConfig(
                id=spec.id,
                kwargs=dict(spec.kwargs),
                backend="pettingzoo" if spec.id in TWINS else "auto",
            ),
            spec=spec,
            sides={agent: (agent,) for agent in spec.agents},
            populations=self.populations,
            num_envs=NUM_ENVS,
            launch_directory=self._launch_directory,
        )
        try:
            yield env
        finally:
            env.close()

    @contextlib.contextmanager
    def single(self) -> Iterator[Any]:
        """PettingZoo's own environment."""
        spec = self.spec
        env = make_environment(
            spec.id, kwargs=spec.kwargs, api=spec.api, launch_directory=self._launch_directory
        )
        try:
            yield env
        finally:
            env.close()

    def random_actions(self, turn: Turn, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """One legal action for each decision."""
        return random_legal_actions(turn, num_actions=self._num_actions, generator=generator)


def _measure(subject: _Subject, report: EnvironmentReport, *, seconds: float) -> None:
    generator = torch.Generator().manual_seed(SEED)
    calls = decisions = length_sum = 0
    stepping_s = 0.0
    began = torch.zeros(NUM_ENVS, dtype=torch.int64)
    with subject.batch() as env:
        turn = env.reset(range(NUM_ENVS))
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            decisions += sum(int((g.agent_index >= 0).sum()) for g in turn.groups.values())
            actions = subject.random_actions(turn, generator)
            before = time.perf_counter()
            turn = env.step(actions)
            stepping_s += time.perf_counter() - before
            calls += 1
            over = turn.episode_over
            length_sum += int((calls - began[over]).sum())
            report.episodes += int(over.sum())
            began[over] = calls
    if calls:
        report.env_steps_per_s = calls * NUM_ENVS / stepping_s
        report.agent_steps_per_s = decisions / stepping_s
    if report.episodes:
        report.mean_length = length_sum / report.episodes


def _digest(subject: _Subject) -> str:
    """Of everything that a seeded run says."""
    generator = torch.Generator().manual_seed(SEED)
    digest = hashlib.sha256()
    with subject.batch() as env:
        turn = env.reset(range(NUM_ENVS))
        for _ in range(NUM_STEPS):
            turn = env.step(subject.random_actions(turn, generator))
            for group in turn.groups.values():
                digest.update(group.agent_index.numpy().tobytes())
                digest.update(group.observation[group.agent_index >= 0].numpy().tobytes())
            for told in (turn.reward, turn.terminated, turn.truncated, turn.episode_over):
                digest.update(told.numpy().tobytes())
    return digest.hexdigest()


def _aliases(env: Any, *, spec: EnvironmentSpec) -> str | None:  # noqa: ANN401
    """The first agent one of whose observations changed after it was returned."""
    returned: list[tuple[str, npt.NDArray[Any], npt.NDArray[Any]]] = []
    rng = np.random.default_rng(SEED)
    play = _play_parallel if spec.api == "parallel" else _play_in_turns
    for count, (agent, observation) in enumerate(play(env, rng=rng)):
        for owner, array, copy in returned:
            if not np.array_equal(array, copy):
                return owner
        arrays = observation.values() if isinstance(observation, Mapping) else [observation]
        returned += [(agent, a, a.copy()) for a in arrays if isinstance(a, np.ndarray)]
        del returned[: -4 * len(spec.agents)]
        if count >= NUM_STEPS:
            break
    return None


def _play_in_turns(env: Any, *, rng: np.random.Generator) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    env.reset(seed=SEED)
    for agent in env.agent_iter():
        observation, _, terminated, truncated, info = env.last()
        yield agent, observation
        if terminated or truncated:
            env.step(None)
        else:
            env.step(_random_action(env.action_space(agent), observation, info, rng=rng))


def _play_parallel(env: Any, *, rng: np.random.Generator) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    observations, infos = env.reset(seed=SEED)
    yield from observations.items()
    for _ in range(NUM_STEPS):
        if not env.agents:
            return
        actions = {
            agent: _random_action(
                env.action_space(agent), observations[agent], infos.get(agent, {}), rng=rng
            )
            for agent in env.agents
            if agent in observations
        }
        observations, _, _, _, infos = env.step(actions)
        yield from observations.items()


def _random_action(
    space: Any,  # noqa: ANN401
    observation: object,
    info: Mapping[str, Any],
    *,
    rng: np.random.Generator,
) -> int:
    mask = info.get("action_mask")
    if isinstance(observation, Mapping) and "action_mask" in observation:
        mask = observation["action_mask"]
    legal = np.arange(space.n) if mask is None else np.flatnonzero(mask)
    return int(space.start) + int(rng.choice(legal))


def _contract(env: Any, report: EnvironmentReport) -> None:  # noqa: ANN401
    """Run PettingZoo's own contract test; it prints and warns."""
    with warnings.catch_warnings():
        # Importing it imports an environment in a way that PettingZoo itself warns of.
        warnings.simplefilter("ignore")
        from pettingzoo.test import api_test, parallel_api_test

    test = parallel_api_test if report.spec.api == "parallel" else api_test
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        try:
            test(env, num_cycles=NUM_CONTRACT_CYCLES)
        except Exception as error:
            # It asserts, and calls the environment, which may raise anything.
            report.problems.append(f"PettingZoo's {test.__name__}: {_line(error)}")
    report.notes += dict.fromkeys(_line(warning.message) for warning in caught)


def _line(message: object) -> str:
    text = " ".join(str(message).split()) or type(message).__name__
    return text if len(text) <= 300 else f"{text[:297]}..."
