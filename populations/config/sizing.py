"""Numbers of environments that step as one batch, and of whole episodes that each plays.

Pure functions of the figures of random play of one environment;
`populations.config.resolve.resolve_config` puts their results in the configuration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from arena.config import MAX_CORES, MarginOutcome
from arena.environment_spec import EnvironmentSpec
from arena.envs.openspiel.game import is_openspiel
from arena.envs.probe.pace import Pace
from arena.envs.registry import TWINS
from arena.errors import ConfigError
from arena.rollout.calls import rollout_calls
from arena.spaces import ObservationLayout
from populations.config.run_config import RunConfig

# More than that amortizes nothing that counts beside Python's own steps.
NUM_ENVS = 256
"""The most that are chosen, and the number for batched games and for environments that were not
played."""

# A rollout of 32 calls then still has 256 decisions, 64 for each of four minibatches. Calls of a
# network cost a few hundred microseconds, which fewer rows would not repay. Eight agents that
# decide at once (pursuit: 500 steps of 5 ms) bring the eight decisions with fewer environments.
FEW_ENVS, FEW_DECISIONS = 4, 8
"""The fewest environments, and the fewest decisions in one call of step."""

UNPLAYABLE_NUM_ENVS = 16
"""Value for environments that random play breaks or takes minutes for: their size is unknown."""

# Eight policies (the default) on two learners have 45 s each of a run of three minutes, less what
# starting and evaluation take: each ends episodes of all its environments, most of them twice. By
# the figures of one core, with `CALL_S` and `DECISION_S`: chess, 300 steps of 1 ms, 32
# environments; Go on 9 x 9, 120 of 0.4 ms, 256; pursuit, 500 of 5 ms with eight agents, 4; 1,000
# steps of 2 ms, 8; Simple Spread, 25 of 0.2 ms with three agents, 256. Random games are shorter or
# longer than good ones: it is a start, and unfinished episodes go on in the next assignment.
ROUND_S = 16.0
"""Seconds of a learner in which all environments may play an episode."""

# Calls of networks and optimizer steps, and their rows (`arena/learning/README.md`), with two
# layers of 128.
CALL_S, DECISION_S = 1e-3, 2e-5
"""Approximate cost to a core of acting and learning, for each call of step and each decision."""

# The default has as many with four agents at once. More are slower to learn from than they are good
# for, and take longer than an assignment where steps do.
ROLLOUT_DECISIONS = 32_768
"""The most decisions of a rollout."""

# Few environments show enough of large pictures.
ROLLOUT_BYTES = 256 << 20
"""The most bytes of observations in a rollout."""

# The rest is for episodes of other policies that a learner holds, networks and optimizers.
MEMORY_SHARE = 8
"""Divisor of the machine's memory: an eighth is for the environments that learners step and their
observations in a rollout."""

# Only whole episodes count in such a run, and decisions stand for the seconds, which may decide
# nothing.
DETERMINISTIC_AGENT_STEPS = 16_384
"""Size of an assignment of a deterministic run where ``assignment.agent_steps`` says nothing."""

DETERMINISTIC_ROLLOUTS = 4
"""Rollouts in an assignment of a deterministic run whose length of episodes is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Demands of a configuration on a learner, beside the environment's pace.

    Attributes:
        decisions: Decisions of the largest population in a step of one environment.
        rollout_length: Calls of step in a rollout, the longest of all populations.
        rollout_bytes: Size of the observations of one environment in a rollout.
        num_learners: Number of learners that share the machine.
        agent_steps: Size wanted of an assignment of whole episodes; None: not deterministic.
    """

    decisions: int
    rollout_length: int
    rollout_bytes: int
    num_learners: int
    agent_steps: int | None


RANK_ROWS = 512
"""Rows of a minibatch, for each process of a learner, below which one more is not worth a core:
what an optimizer step costs without any rows is not divided."""


def needs_pace(config: RunConfig) -> bool:
    """Return whether something is left to be chosen by how an environment plays."""
    return (
        config.environment.num_envs == "auto"
        or needs_margin(config)
        or (config.deterministic and config.assignment.episodes is None)
    )


def needs_margin(config: RunConfig) -> bool:
    """Return whether the margin of a whole match is left to be found by play."""
    outcome = config.environment.outcome
    return isinstance(outcome, MarginOutcome) and outcome.margin == "auto"


def choose_num_envs(pace: Pace, load: Load) -> int:
    """Choose how many environments step as one batch: a power of two.

    As many as all play an episode within `ROUND_S`, or in a deterministic run within its agent
    steps; at least `FEW_ENVS`, if memory allows.
    """
    if pace.is_batched:
        return NUM_ENVS
    # n from episode_length (CALL_S + n (step_s + decisions DECISION_S)) = ROUND_S.
    if load.agent_steps is None:
        call_s = ROUND_S / pace.episode_length
        in_time = (call_s - CALL_S) / (pace.step_s + load.decisions * DECISION_S)
    else:
        # Seconds do not count: a measured speed decides nothing in a deterministic run.
        in_time = load.agent_steps / (pace.episode_length * load.decisions)
    in_rollout = min(
        ROLLOUT_DECISIONS / (load.rollout_length * load.decisions),
        ROLLOUT_BYTES / load.rollout_bytes,
    )
    fewest = max(FEW_ENVS, FEW_DECISIONS // load.decisions)
    # The fewest win over time and rollout, but not over memory.
    wanted = max(fewest, min(NUM_ENVS, in_time, in_rollout))
    return _power_of_two(min(wanted, fit_in_memory(pace, load)))


def fit_in_memory(pace: Pace, load: Load) -> float:
    """Return how many environments have room in memory, beside those of the other learners."""
    env_bytes, machine_bytes = float(pace.env_bytes), float(pace.machine_bytes)
    if load.agent_steps is not None:
        # Measured sizes differ a little each time, which should decide nothing: needs are rounded
        # up and the machine's memory down, so that rounding never promises memory.
        env_bytes = 4.0 ** math.ceil(math.log(max(env_bytes, 1.0), 4.0))
        machine_bytes = 2.0 ** math.floor(math.log2(machine_bytes))
    return machine_bytes / (MEMORY_SHARE * load.num_learners * (env_bytes + load.rollout_bytes))


def choose_episodes(pace: Pace, load: Load, *, num_envs: int) -> int | None:
    """Choose how many whole episodes each environment plays; None: not deterministic."""
    if load.agent_steps is None:
        return None
    # episodes * num_envs * episode_length * decisions = agent_steps, nearly
    return max(1, round(load.agent_steps / (num_envs * pace.episode_length * load.decisions)))


def _power_of_two(most: float) -> int:
    return 1 << max(0, math.floor(math.log2(most)))


def resolve_sizes(config: RunConfig, spec: EnvironmentSpec, *, pace: Pace | None) -> RunConfig:
    """Put numbers where sizes are left to Arena.

    Args:
        config: Resolved but for these.
        spec: The environment's facts.
        pace: Figures of random play; None: the environment was not played.
    """
    environment, assignment = config.environment, config.assignment
    num_envs, episodes = environment.num_envs, assignment.episodes
    # A number that the user wrote stays, and only the open one is chosen.
    if pace is not None and needs_pace(config):
        load = load_of(config, spec)
        num_envs = choose_num_envs(pace, load) if num_envs == "auto" else num_envs
        episodes = episodes or choose_episodes(pace, load, num_envs=num_envs)
    if num_envs == "auto":
        num_envs = NUM_ENVS
    agent_steps = assignment.agent_steps
    if config.deterministic and episodes is None and agent_steps is None:
        agent_steps = DETERMINISTIC_ROLLOUTS * _rollout_length(config, spec) * num_envs
    return config.model_copy(
        update={
            "environment": environment.model_copy(update={"num_envs": num_envs}),
            "assignment": assignment.model_copy(
                update={"episodes": episodes, "agent_steps": agent_steps}
            ),
        }
    )


def check_env_workers(config: RunConfig, spec: EnvironmentSpec, *, pace: Pace | None) -> None:
    """Check that processes can step the environments, and that each has one.

    Args:
        config: Resolved.
        spec: The environment's facts.
        pace: Figures of random play; None: the environment was not played.

    Raises:
        ConfigError: If they cannot.
    """
    number, key = config.environment.num_env_workers, "environment.num_env_workers"
    num_envs = config.num_envs
    if not number:
        return
    if is_openspiel(spec.id):
        raise ConfigError(
            f"{key} must be 0 where OpenSpiel plays (a step takes less than a message to another "
            f"process), got {number} with {spec.id}"
        )
    # Learners refuse it, too.
    if _is_batched(config, spec, pace=pace):
        raise ConfigError(
            f"{key} must be 0 where a batched game steps all environments at once, got {number} "
            f"with {spec.id} (environment.backend pettingzoo steps the original, one by one)"
        )
    if number > num_envs:
        raise ConfigError(
            f"{key} must be at most environment.num_envs, {num_envs} (each process steps one "
            f"environment or more), got {number}"
        )


def _is_batched(config: RunConfig, spec: EnvironmentSpec, *, pace: Pace | None) -> bool:
    """Return whether a batched game steps all environments at once, as far as it is known."""
    environment = config.environment
    if environment.backend == "batched":
        return True
    # A user's own batched game is known as one only if it was played.
    has_twin = spec.id in TWINS and environment.possible_backend == "auto"
    return pace.is_batched if pace is not None else has_twin and not config.reads_state


def choose_learner_cores(
    config: RunConfig, spec: EnvironmentSpec, *, num_cores: int, pace: Pace | None
) -> int:
    """Return how many processes of a learner train together.

    Args:
        config: Resolved but for this.
        spec: The environment's facts.
        num_cores: Number of cores that learners may use.
        pace: Figures of random play; None: the environment was not played.

    Raises:
        ConfigError: If there are more than environments.
    """
    wanted, num_envs = config.learner_cores, config.num_envs
    if wanted != "auto":
        if wanted > num_envs:
            raise ConfigError(
                f"learner_cores must be at most environment.num_envs, {num_envs} (each process "
                f"steps one environment or more), got {wanted}"
            )
        return wanted
    learns_in_ranks = all(config.populations[name].algorithm == "ppo" for name in config.learning)
    is_possible = (
        config.launcher == "local"
        # Weights would depend on the machine's cores.
        and not config.deterministic
        and not config.environment.num_env_workers
        and learns_in_ranks
        and config.learners != 0
        and not any(name.startswith("cuda") for name in config.devices)
        and _is_batched(config, spec, pace=pace)
    )
    if not is_possible:
        return 1
    # Rows of the smallest minibatch of a population.
    num_minibatches = max(
        int(config.populations[name].start_values.get("num_minibatches", 1))
        for name in config.learning
    )
    decisions = num_envs * _rollout_length(config, spec) * _decisions(config, spec)
    left, rows = num_cores // _num_learners(config), decisions // num_minibatches
    return max(1, min(left, rows // RANK_ROWS, num_envs, MAX_CORES))


def check_rollout_memory(config: RunConfig, spec: EnvironmentSpec, *, machine_bytes: int) -> None:
    """Refuse rollouts whose observations exceed the machine's memory, which nothing could train on.

    Args:
        config: Resolved.
        spec: The environment's facts.
        machine_bytes: Memory of the machine that learners run on.

    Raises:
        ConfigError: With the limit and the value.
    """
    if config.serves_store:
        return
    num_learners, rollout_length = _num_learners(config), _rollout_length(config, spec)
    step = max(step_bytes(spec, agents) for agents in config.agents_of.values())
    rollouts = step * rollout_length * config.num_envs * num_learners
    if rollouts > machine_bytes:
        raise ConfigError(
            f"the observations of a rollout of {num_learners} learners must fit this machine's "
            f"memory of {machine_bytes / 1e9:,.1f} GB, got {rollouts / 1e9:,.1f} GB: {step:,} "
            f"bytes in each step of environment.num_envs={config.num_envs}, "
            f"rollout_length={rollout_length}"
        )


def step_bytes(spec: EnvironmentSpec, agents: Sequence[str]) -> int:
    """Return the bytes of observations of some agents in a step of one environment."""
    facts = (spec.agent_specs[agent] for agent in agents)
    layouts = [ObservationLayout.from_json(one.observation) for one in facts]
    sizes = [layout.size * layout.dtype.itemsize for layout in layouts]
    # One agent decides in each step of a game in turns, and its observation alone is kept.
    return max(sizes) if spec.api == "aec" else sum(sizes)


def with_sizes_of(config: RunConfig, chosen: RunConfig) -> RunConfig:
    """Return a configuration whose open sizes are those that the run chose at launch."""
    environment, assignment = config.environment, config.assignment
    if environment.num_envs == "auto":
        environment = environment.model_copy(update={"num_envs": chosen.environment.num_envs})
    # The margin is measured as well, and was resolved to a number at launch.
    if needs_margin(config):
        environment = environment.model_copy(update={"outcome": chosen.environment.outcome})
    if config.deterministic and assignment.episodes is None:
        assignment = assignment.model_copy(update={"episodes": chosen.assignment.episodes})
    return config.model_copy(update={"environment": environment, "assignment": assignment})


def load_of(config: RunConfig, spec: EnvironmentSpec) -> Load:
    """Return the demands of a configuration on a learner.

    Args:
        config: Resolved but for its sizes.
        spec: The environment's facts.
    """
    rollout_length = _rollout_length(config, spec)
    wanted = config.assignment.agent_steps or DETERMINISTIC_AGENT_STEPS
    return Load(
        decisions=_decisions(config, spec),
        rollout_length=rollout_length,
        # A game may show nothing, which counts as one byte.
        rollout_bytes=rollout_length * max(step_bytes(spec, spec.agents), 1),
        num_learners=_num_learners(config),
        agent_steps=wanted if config.deterministic else None,
    )


def _num_learners(config: RunConfig) -> int:
    learners = config.learners
    return sum(learners.values()) if isinstance(learners, dict) else learners or 1


def num_sharing(config: RunConfig) -> int:
    """Return how many populations share the learners of each: 1 where they have their own, or learn
    in the same assignments.
    """
    learns_together = config.matchmaking.rivals == "learning"
    is_cooperation = len(config.sides) == 1
    if isinstance(config.learners, dict) or learns_together or is_cooperation:
        return 1
    return len(config.learning)


def _decisions(config: RunConfig, spec: EnvironmentSpec) -> int:
    """Return decisions of the largest population in a step of one environment."""
    if spec.api == "aec":
        return 1
    return max(map(len, config.agents_of.values()))


def _rollout_length(config: RunConfig, spec: EnvironmentSpec) -> int:
    """Return calls of step in a rollout, the longest of all populations."""
    longest = max(
        int(population.start_values.get("rollout_length", 1))
        for population in config.populations.values()
    )
    return rollout_calls(longest, agents_in_turn=len(spec.agents) if spec.api == "aec" else 1)


def without_pace(config: RunConfig, *, why: str) -> RunConfig:
    """Choose sizes carefully where random play did not come to an end.

    Args:
        config: Configuration as loaded.
        why: Reason why play did not end.

    Raises:
        ConfigError: If the run is deterministic: it would be another one if play ended next time.
            If a margin is to be measured.
    """
    if needs_margin(config):
        raise ConfigError(
            "environment.outcome.margin must be a number where random play cannot measure it, got "
            f"'auto': {why}"
        )
    if config.deterministic:
        raise ConfigError(
            "environment.num_envs and assignment.episodes must be numbers where deterministic is "
            f"true and the length of an episode cannot be measured: {why}"
        )
    environment = config.environment.model_copy(update={"num_envs": UNPLAYABLE_NUM_ENVS})
    return config.model_copy(update={"environment": environment})


def explain(config: RunConfig, spec: EnvironmentSpec, *, pace: Pace) -> str:
    """Say what the sizes of a resolved configuration follow from."""
    return ", ".join(_reasons(pace, load_of(config, spec), num_envs=config.num_envs))


def _reasons(pace: Pace, load: Load, *, num_envs: int) -> Iterator[str]:
    speed = (
        f" at {1.0 / pace.step_s:,.0f} steps/s"
        if load.agent_steps is None and not pace.is_batched and pace.step_s > 0.0
        else ""
    )
    if pace.is_lower_bound:
        yield f"no episode ended within {pace.episode_length:,.0f} steps of random play{speed}"
    else:
        yield f"episodes of about {pace.episode_length:,.0f} steps{speed}"
    if pace.is_batched:
        yield "all at once as a batched game"
        return
    if pace.env_bytes >= 0.05e6:
        yield f"{pace.env_bytes / 1e6:,.1f} MB each"
    # The next power of two would not have fitted.
    if fit_in_memory(pace, load) < 2 * num_envs:
        yield "as many as memory allows"
