"""Parts of a configuration that depend on the environment: agents, sides, outcomes, teams.

The functions are pure, and `populations.config.resolve.resolve_config` calls them. A function that
takes a `RunConfig` requires that its agents, sides and populations are resolved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile

from arena.config import CONVOLUTIONAL, MarginOutcome, NetworkConfig, Outcome
from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.envs.outcome import check_outcome
from arena.envs.probe.pace import Pace
from arena.envs.spaces.critic_input import critic_input
from arena.errors import ConfigError
from arena.matches.seating import check_partition
from arena.networks.planes import convolved_parts
from arena.rules import nearest
from arena.spaces import ObservationLayout
from arena.types import canonical_digest
from populations.config.run_config import RunConfig
from populations.fields import POPULATION_NAME

ONLY_NAME, FALLBACK_NAME = "player", "population"
"""Names of populations whose agents have no common prefix: of a single one, and of several."""


def expand_agents(patterns: Sequence[str], *, agents: tuple[str, ...], key: str) -> tuple[str, ...]:
    """Return the agents that match names or globs, in the environment's order.

    Args:
        patterns: Agent names, or globs as in ``adversary_*``.
        agents: All agents.
        key: Dotted key of the patterns, for messages.

    Raises:
        ConfigError: If a pattern matches no agent.
    """
    found: set[str] = set()
    for pattern in patterns:
        # An exact name comes before a glob, as a name may have a glob's characters: agent[0].
        meant = {pattern} & set(agents) or {a for a in agents if fnmatchcase(a, pattern)}
        found |= meant
        if not meant:
            raise ConfigError(
                f"{key}: there is no agent {pattern!r}{nearest(pattern, agents)}; agents: "
                f"{', '.join(agents)}"
            )
    return tuple(agent for agent in agents if agent in found)


def resolve_sides(
    sides: Mapping[str, Sequence[str]] | None, *, agents: tuple[str, ...]
) -> dict[str, list[str]]:
    """Return the agents of each side; by default each agent is a side.

    Raises:
        ConfigError: If an agent is on no side or on two, or a side has none.
    """
    if sides is None:
        return {agent: [agent] for agent in agents}
    resolved = {
        side: list(expand_agents(patterns, agents=agents, key=f"environment.sides.{side}"))
        for side, patterns in sides.items()
    }
    # This check is needed because globs may overlap or miss an agent.
    check_partition(resolved, agents=agents, key="environment.sides")
    return resolved


def resolve_outcome(
    outcome: Outcome, *, sides: Mapping[str, Sequence[str]], pace: Pace | None
) -> Outcome:
    """Check an outcome, and replace a margin of ``auto`` by the largest margin of random play.

    Args:
        outcome: Outcome as configured.
        sides: Agents of the sides that it scores.
        pace: Measurements of random play; None if there was none, and ``auto`` stays.

    Raises:
        ConfigError: If the outcome names an unknown side, or cannot score this number of sides; if
            no match of random play was won or lost.
    """
    check_outcome(outcome, sides=sides)
    if isinstance(outcome, MarginOutcome) and outcome.margin == "auto" and pace is not None:
        # Without any difference of returns, there is no unit for the margin of a clear win.
        if pace.largest_margin <= 0.0:
            raise ConfigError(
                "environment.outcome.margin must be a number: in random play no agent's return "
                "was ever above another's, got 'auto'"
            )
        return MarginOutcome(margin=pace.largest_margin)
    return outcome


def check_teams(config: RunConfig) -> None:
    """Check that populations that cooperate can be divided into teams that learn together.

    Raises:
        ConfigError: If populations differ in size, or learners are bound to populations.
    """
    # Policies form teams only in an environment with one side.
    if len(config.sides) > 1:
        return
    for name in config.populations:
        if name not in config.learning:
            raise ConfigError(
                f"populations.{name}.player must be null where the environment has one side "
                "(policies of equal index are a team, and learn together): to train beside it, "
                "give it a side of its own, and name the return that is a success for the other "
                "one: environment.outcome={threshold: RETURN, side: SIDE}"
            )
    sizes = {name: population.size for name, population in config.populations.items()}
    if len(set(sizes.values())) > 1:
        raise ConfigError(
            "populations: must have equal sizes where the environment has one side (policies of "
            f"equal index are a team), got {sizes}"
        )
    if isinstance(config.learners, Mapping) and len(sizes) > 1:
        raise ConfigError(
            "learners must be a number where the environment has one side (a team learns on one "
            f"learner), got {dict(config.learners)}"
        )


def check_teammates(config: RunConfig) -> None:
    """Check that there is a side on which teammates can be mixed.

    Raises:
        ConfigError: If no population has two agents on one side, several populations cooperate, or
            roles decide which policies play each other.
    """
    matchmaking, populations, sides = config.matchmaking, config.agents_of, config.sides
    if matchmaking.teammates == "same":
        return
    rule = "matchmaking.teammates must be 'same'"
    if not any(
        len(set(own) & set(agents)) > 1 for own in populations.values() for agents in sides.values()
    ):
        raise ConfigError(
            f"{rule} where no population has two agents on one side (there are no partners), got "
            f"{matchmaking.teammates!r}"
        )
    if len(sides) == 1 and len(populations) > 1:
        raise ConfigError(
            f"{rule} where several populations cooperate (policies of equal index are a team), got "
            f"{matchmaking.teammates!r} with populations {', '.join(populations)}"
        )
    if matchmaking.kind == "alphastar":
        raise ConfigError(
            f"{rule} with matchmaking.kind 'alphastar' (its roles say who plays against whom, and "
            f"of partners nothing), got {matchmaking.teammates!r}"
        )


def check_turns(config: RunConfig) -> None:
    """Check that populations that learn in turns can do so.

    Raises:
        ConfigError: If only one population learns, or there is only one side.
    """
    turns, num_sides = config.matchmaking.learning_side_turns, len(config.sides)
    if turns is not None and (len(config.learning) < 2 or num_sides < 2):
        raise ConfigError(
            "matchmaking.learning_side_turns must be null with one population or one side (nobody "
            f"would stand still), got {turns.model_dump()} with populations "
            f"{', '.join(config.learning)} and {num_sides} side{'s' * (num_sides != 1)}"
        )


def check_rivals(config: RunConfig) -> None:
    """Check that two populations can learn against each other in one assignment.

    Raises:
        ConfigError: If there are not two populations with a side each, another key decides which
            policies learn or are teammates, or learners are bound to populations.
    """
    matchmaking, sides = config.matchmaking, config.sides
    if matchmaking.rivals == "frozen":
        return
    rule = "matchmaking.rivals must be 'frozen'"
    agents_of_sides = [set(agents) for agents in sides.values()]
    if (
        len(sides) != 2
        or len(config.learning) != 2
        or not all(set(config.agents_of[name]) in agents_of_sides for name in config.learning)
    ):
        raise ConfigError(
            f"{rule} unless two populations that learn have a side each, got 'learning' with "
            f"populations {', '.join(config.learning)} and sides {', '.join(sides)}"
        )
    if matchmaking.kind == "alphastar":
        raise ConfigError(
            f"{rule} with matchmaking.kind 'alphastar' (its roles say who plays against whom), got "
            "'learning'"
        )
    if matchmaking.learning_side_turns is not None:
        raise ConfigError(
            f"{rule} with matchmaking.learning_side_turns (one population stands still), got "
            "'learning'"
        )
    if matchmaking.teammates != "same":
        raise ConfigError(
            f"{rule} with matchmaking.teammates {matchmaking.teammates!r} (the rival would have "
            "partners, too), got 'learning'"
        )
    if isinstance(config.learners, Mapping):
        raise ConfigError(
            "learners must be a number where matchmaking.rivals is 'learning' (both learn on one "
            f"learner), got {dict(config.learners)}"
        )


def check_rival_envs(config: RunConfig) -> None:
    """Check that each of two rivals has an environment for matches against other opponents.

    Raises:
        ConfigError: If there is one environment.
    """
    if config.matchmaking.rivals == "learning" and config.environment.num_envs == 1:
        raise ConfigError(
            "environment.num_envs must be at least 2 where matchmaking.rivals is 'learning' (each "
            "has opponents of its own), got 1"
        )


def group_agents(spec: EnvironmentSpec) -> dict[str, tuple[str, ...]]:
    """Return the default populations: agents with equal spaces, named by their common prefix."""
    groups: dict[str, list[str]] = {}
    for agent in spec.agents:
        # Agents with equal spaces can share a network; compare spaces by their digest.
        groups.setdefault(_spaces(spec, agent), []).append(agent)
    members = [tuple(group) for group in groups.values()]
    names = [_common_name(group) for group in members]
    return {
        _distinct_name(name, group=group, index=index, taken=names): group
        for index, (name, group) in enumerate(zip(names, members, strict=True))
    }


def check_equal_spaces(name: str, *, agents: Sequence[str], spec: EnvironmentSpec) -> None:
    """Check that one policy can play all agents of a population.

    Raises:
        ConfigError: Names two agents with different spaces.
    """
    for agent in agents[1:]:
        if _spaces(spec, agent) != _spaces(spec, agents[0]):
            raise ConfigError(
                f"populations.{name}.agents: must have equal observation and action spaces, but "
                f"{agents[0]!r} and {agent!r} differ"
            )


def check_encoder(name: str, *, network: NetworkConfig, facts: AgentSpec) -> None:
    """Check that an observation has parts to convolve if the network has convolutions.

    Raises:
        ConfigError: If there is no such part.
    """
    if network.encoder not in CONVOLUTIONAL:
        return
    try:
        convolved_parts(network, ObservationLayout.from_json(facts.observation))
    except ConfigError as error:
        raise ConfigError(f"populations.{name}.{error}") from error


def check_critics(config: RunConfig, spec: EnvironmentSpec) -> None:
    """Check that centralized critics have something to read.

    Raises:
        ConfigError: If a critic has no input.
    """
    for name, population in config.populations.items():
        critic_input(
            population.network,
            population=name,
            populations=config.agents_of,
            sides=config.sides,
            spec=spec,
        )


def _spaces(spec: EnvironmentSpec, agent: str) -> str:
    facts = spec.agent_specs[agent]
    return canonical_digest([facts.observation, facts.action, facts.mask])


def _common_name(agents: Sequence[str]) -> str:
    # The prefix that the first and the last text in sorted order share is common to all.
    pairs = zip(min(agents), max(agents), strict=False)
    prefix = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)).lower()
    name = re.sub(r"[^a-z0-9]+", "_", prefix).strip("_")
    # Remove a trailing number, which belongs to one agent, and cut the name to the length that
    # POPULATION_NAME allows.
    return re.sub(r"[_0-9]+$", "", name)[:32]


def _distinct_name(name: str, *, group: tuple[str, ...], index: int, taken: Sequence[str]) -> str:
    # A prefix that is empty, or that two groups share, cannot name a population.
    if POPULATION_NAME.fullmatch(name) and taken.count(name) == 1:
        return name
    # If two groups share a prefix, a group of one agent gets the name of its agent.
    if len(group) == 1 and POPULATION_NAME.fullmatch(group[0]) and group[0] not in taken:
        return group[0]
    return ONLY_NAME if len(taken) == 1 else f"{FALLBACK_NAME}_{index}"
