"""Choice of sizes: environments that step as one batch, and whole episodes that each plays.

The functions are pure; their input are measurements of random play in one environment.
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

# A larger batch saves hardly any time, as the cost of Python's own steps remains.
NUM_ENVS = 256
"""Maximum number of environments that is chosen, and the number for batched games and for
environments that were not played."""

# With these minima a rollout of 32 calls has 256 decisions, 64 for each of four minibatches. A call
# of a network costs a few hundred microseconds, which is too much for fewer rows. With eight agents
# that decide at once (pursuit: 500 steps of 5 ms), fewer environments give eight decisions.
FEW_ENVS, FEW_DECISIONS = 4, 8
"""Minimum number of environments, and of decisions in one call of step."""

UNPLAYABLE_NUM_ENVS = 16
"""Number for environments of unknown pace, because random play fails or takes minutes."""

# In a run of three minutes with eight policies (the default) on two learners, each policy has 45 s,
# less the time of start and evaluation. All of its environments then end an episode, most of them
# two. On one core, with `CALL_S` and `DECISION_S`, this gives 32 environments for chess (300 steps
# of 1 ms), 256 for Go on 9 x 9 (120 of 0.4 ms), 4 for pursuit (500 of 5 ms, eight agents), 8 for
# 1,000 steps of 2 ms, and 256 for Simple Spread (25 of 0.2 ms, three agents). Random games have
# other lengths than good ones, but unfinished episodes continue in the next assignment.
ROUND_S = 16.0
"""Seconds of a learner in which each environment should play an episode."""

# These are measurements of calls of networks and optimizer steps, and of their rows, with two
# layers of 128 (`arena/learning/README.md`).
CALL_S, DECISION_S = 1e-3, 2e-5
"""Approximate seconds of a core for acting and learning, per call of step and per decision."""

# The default sizes give this number with four agents that decide at once. With more decisions
# learning is slower, and if steps are slow, a rollout takes longer than an assignment.
ROLLOUT_DECISIONS = 32_768
"""Maximum number of decisions in a rollout."""

# With large pictures, few environments already give enough data.
ROLLOUT_BYTES = 256 << 20
"""Maximum bytes of observations in a rollout."""

# The rest of the memory is for networks, optimizers, and unfinished episodes of other policies.
MEMORY_SHARE = 8
"""Divisor of the machine's memory: an eighth is for the environments that learners step and their
observations in a rollout."""

# A deterministic run plays whole episodes, and measured seconds must not decide anything in it, so
# the size of its assignments is a number of decisions.
DETERMINISTIC_AGENT_STEPS = 16_384
"""Agent steps of an assignment of a deterministic run without ``assignment.agent_steps``."""

DETERMINISTIC_ROLLOUTS = 4
"""Rollouts in an assignment of a deterministic run if the length of episodes is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Sizes in a configuration that determine the work and memory of a learner.

    Attributes:
        decisions: Decisions per step of one environment, in the population with the most.
        rollout_length: Calls of step in a rollout, in the population with the most.
        rollout_bytes: Bytes of the observations of one environment in a rollout.
        num_learners: Number of learners that share the machine.
        agent_steps: Desired agent steps of an assignment of whole episodes; None if the run is not
            deterministic.
    """

    decisions: int
    rollout_length: int
    rollout_bytes: int
    num_learners: int
    agent_steps: int | None


RANK_ROWS = 512
"""Minimum rows of a minibatch per process of a learner. With fewer rows a further process is not
worth its core, as the fixed cost of an optimizer step is not divided."""


def needs_pace(config: RunConfig) -> bool:
    """Return whether measurements of random play are needed to choose sizes or a margin."""
    return (
        config.environment.num_envs == "auto"
        or needs_margin(config)
        or (config.deterministic and config.assignment.episodes is None)
    )


def needs_margin(config: RunConfig) -> bool:
    """Return whether the margin of a clear win has to be measured by random play."""
    outcome = config.environment.outcome
    return isinstance(outcome, MarginOutcome) and outcome.margin == "auto"


def choose_num_envs(pace: Pace, load: Load) -> int:
    """Return the number of environments that step as one batch, a power of two.

    The number is as high as allows each to play an episode within `ROUND_S`, or in a deterministic
    run within the agent steps of an assignment; at least `FEW_ENVS`, if memory allows.
    """
    if pace.is_batched:
        return NUM_ENVS
    # Solve episode_length (CALL_S + n (step_s + decisions DECISION_S)) = ROUND_S for n.
    if load.agent_steps is None:
        call_s = ROUND_S / pace.episode_length
        in_time = (call_s - CALL_S) / (pace.step_s + load.decisions * DECISION_S)
    else:
        # In a deterministic run a measured speed must not decide anything.
        in_time = load.agent_steps / (pace.episode_length * load.decisions)
    in_rollout = min(
        ROLLOUT_DECISIONS / (load.rollout_length * load.decisions),
        ROLLOUT_BYTES / load.rollout_bytes,
    )
    fewest = max(FEW_ENVS, FEW_DECISIONS // load.decisions)
    # The minimum overrides the bounds of time and rollout, but not that of memory.
    wanted = max(fewest, min(NUM_ENVS, in_time, in_rollout))
    return _power_of_two(min(wanted, fit_in_memory(pace, load)))


def fit_in_memory(pace: Pace, load: Load) -> float:
    """Return the number of environments per learner that fit in memory."""
    env_bytes, machine_bytes = float(pace.env_bytes), float(pace.machine_bytes)
    if load.agent_steps is not None:
        # Measured sizes vary a little, which must not change the result. So round the needs up and
        # the machine's memory down, in order that rounding never exceeds the memory.
        env_bytes = 4.0 ** math.ceil(math.log(max(env_bytes, 1.0), 4.0))
        machine_bytes = 2.0 ** math.floor(math.log2(machine_bytes))
    return machine_bytes / (MEMORY_SHARE * load.num_learners * (env_bytes + load.rollout_bytes))


def choose_episodes(pace: Pace, load: Load, *, num_envs: int) -> int | None:
    """Return the number of whole episodes per environment; None if the run is not deterministic."""
    if load.agent_steps is None:
        return None
    # Solve episodes * num_envs * episode_length * decisions = agent_steps, rounded.
    return max(1, round(load.agent_steps / (num_envs * pace.episode_length * load.decisions)))


def _power_of_two(most: float) -> int:
    return 1 << max(0, math.floor(math.log2(most)))


def resolve_sizes(config: RunConfig, spec: EnvironmentSpec, *, pace: Pace | None) -> RunConfig:
    """Return a configuration with numbers for the sizes that the user left open.

    Args:
        config: Configuration, resolved except for sizes.
        spec: Facts about the environment.
        pace: Measurements of random play; None if the environment was not played.
    """
    environment, assignment = config.environment, config.assignment
    num_envs, episodes = environment.num_envs, assignment.episodes
    # Choose only sizes that the user has left open.
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
    """Check that worker processes can step the environments, and that each one has any.

    Args:
        config: Resolved configuration.
        spec: Facts about the environment.
        pace: Measurements of random play; None if the environment was not played.

    Raises:
        ConfigError: If they cannot, or there are more workers than environments.
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
    # A learner refuses this, too, but only after the launch.
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
    """Return whether a batched game steps all environments at once; False if that is unknown."""
    environment = config.environment
    if environment.backend == "batched":
        return True
    # Only random play shows that a user's own game is batched.
    has_twin = spec.id in TWINS and environment.possible_backend == "auto"
    return pace.is_batched if pace is not None else has_twin and not config.reads_state


def choose_learner_cores(
    config: RunConfig, spec: EnvironmentSpec, *, num_cores: int, pace: Pace | None
) -> int:
    """Return the number of processes of a learner that train together.

    Args:
        config: Configuration, resolved except for this number.
        spec: Facts about the environment.
        num_cores: Number of cores that learners may use.
        pace: Measurements of random play; None if the environment was not played.

    Raises:
        ConfigError: If the configured number is higher than that of environments.
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
        # In a deterministic run weights must not depend on the machine's number of cores.
        and not config.deterministic
        and not config.environment.num_env_workers
        and learns_in_ranks
        and config.learners != 0
        and not any(name.startswith("cuda") for name in config.devices)
        and _is_batched(config, spec, pace=pace)
    )
    if not is_possible:
        return 1
    # The population with the most minibatches has the fewest rows in each.
    num_minibatches = max(
        int(config.populations[name].start_values.get("num_minibatches", 1))
        for name in config.learning
    )
    decisions = num_envs * _rollout_length(config, spec) * _decisions(config, spec)
    left, rows = num_cores // _num_learners(config), decisions // num_minibatches
    return max(1, min(left, rows // RANK_ROWS, num_envs, MAX_CORES))


def check_rollout_memory(config: RunConfig, spec: EnvironmentSpec, *, machine_bytes: int) -> None:
    """Refuse a configuration whose observations of a rollout exceed the machine's memory.

    Args:
        config: Resolved configuration.
        spec: Facts about the environment.
        machine_bytes: Memory of the machine on which learners run.

    Raises:
        ConfigError: Names the limit and the value.
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
    """Return the bytes of the observations of some agents in a step of one environment."""
    facts = (spec.agent_specs[agent] for agent in agents)
    layouts = [ObservationLayout.from_json(one.observation) for one in facts]
    sizes = [layout.size * layout.dtype.itemsize for layout in layouts]
    # In each step of a game in turns one agent decides, and only its observation is stored.
    return max(sizes) if spec.api == "aec" else sum(sizes)


def with_sizes_of(config: RunConfig, chosen: RunConfig) -> RunConfig:
    """Return a configuration whose open sizes are those of ``chosen``, of the run's launch."""
    environment, assignment = config.environment, config.assignment
    if environment.num_envs == "auto":
        environment = environment.model_copy(update={"num_envs": chosen.environment.num_envs})
    # The margin was measured at launch, too.
    if needs_margin(config):
        environment = environment.model_copy(update={"outcome": chosen.environment.outcome})
    if config.deterministic and assignment.episodes is None:
        assignment = assignment.model_copy(update={"episodes": chosen.assignment.episodes})
    return config.model_copy(update={"environment": environment, "assignment": assignment})


def load_of(config: RunConfig, spec: EnvironmentSpec) -> Load:
    """Return the sizes in a configuration that determine the work and memory of a learner.

    Args:
        config: Configuration, resolved except for sizes.
        spec: Facts about the environment.
    """
    rollout_length = _rollout_length(config, spec)
    wanted = config.assignment.agent_steps or DETERMINISTIC_AGENT_STEPS
    return Load(
        decisions=_decisions(config, spec),
        rollout_length=rollout_length,
        # A game may have empty observations; avoid a division by 0.
        rollout_bytes=rollout_length * max(step_bytes(spec, spec.agents), 1),
        num_learners=_num_learners(config),
        agent_steps=wanted if config.deterministic else None,
    )


def _num_learners(config: RunConfig) -> int:
    learners = config.learners
    return sum(learners.values()) if isinstance(learners, dict) else learners or 1


def num_sharing(config: RunConfig) -> int:
    """Return the number of populations that share learners: 1 if each has its own, or if they learn
    in the same assignments.
    """
    learns_together = config.matchmaking.rivals == "learning"
    is_cooperation = len(config.sides) == 1
    if isinstance(config.learners, dict) or learns_together or is_cooperation:
        return 1
    return len(config.learning)


def _decisions(config: RunConfig, spec: EnvironmentSpec) -> int:
    """Return decisions per step of one environment, in the population with the most."""
    if spec.api == "aec":
        return 1
    return max(map(len, config.agents_of.values()))


def _rollout_length(config: RunConfig, spec: EnvironmentSpec) -> int:
    """Return calls of step in a rollout, in the population with the most."""
    longest = max(
        int(population.start_values.get("rollout_length", 1))
        for population in config.populations.values()
    )
    return rollout_calls(longest, agents_in_turn=len(spec.agents) if spec.api == "aec" else 1)


def without_pace(config: RunConfig, *, why: str) -> RunConfig:
    """Return a configuration with a cautious size, for an environment whose random play failed.

    Args:
        config: Configuration as loaded.
        why: Reason why play failed or did not end.

    Raises:
        ConfigError: If the run is deterministic, as it would have other sizes if play succeeded
            next time; or if a margin has to be measured.
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
    """Return the measurements behind the sizes of a resolved configuration, in words."""
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
    # Memory was the bound if the next power of two would not fit.
    if fit_in_memory(pace, load) < 2 * num_envs:
        yield "as many as memory allows"
