"""The agents that may appear in an environment. Torch-free."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from arena.errors import ConfigError

MAX_AGENTS = 4096
"""Most agents of an environment: each has a column in every table."""

RANGE = re.compile(r"(?P<before>[^{}]*)\{(?P<first>\d+)\.\.(?P<last>\d+)\}(?P<after>.*)")
"""Range of agents, such as ``walker_{0..9}``."""


def agents_of(
    env: Any,  # noqa: ANN401
    *,
    environment_id: str,
    declared: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """Return all agents that may appear.

    Args:
        env: A PettingZoo environment.
        environment_id: Environment's id, for messages.
        declared: Agents that the user declares, where the environment does not.

    Raises:
        ConfigError: If they are unknown, or declared by both.
    """
    # PettingZoo lets an environment leave the attribute out or empty.
    agents = getattr(env, "possible_agents", None)
    if agents and declared is not None:
        raise ConfigError(
            f"environment.possible_agents must be left out: {environment_id} itself says that they "
            f"are {list(agents)}"
        )
    if declared is not None:
        return named_agents(declared)
    if not agents:
        raise ConfigError(
            f"environment.id {environment_id} must have possible_agents, all agents that may "
            f"appear. It does not say: list them as environment.possible_agents, for instance "
            f"[walker_{{0..9}}, boss]"
        )
    return tuple(agents)


def named_agents(patterns: Sequence[str]) -> tuple[str, ...]:
    """Expand ranges: ``walker_{0..2}`` is walker_0, walker_1 and walker_2.

    Raises:
        ConfigError: If there is no agent, one occurs twice, or there are more than `MAX_AGENTS`.
    """
    written = (agent for pattern in patterns for agent in _written_out(pattern))
    # One more than the limit is enough to refuse a huge range without expanding it.
    agents = tuple(islice(written, MAX_AGENTS + 1))
    if len(agents) > MAX_AGENTS:
        raise ConfigError(
            f"environment.possible_agents must be at most {MAX_AGENTS}, got more: {list(patterns)}"
        )
    # Two ranges may overlap, or a range and a name.
    twice = sorted(agent for agent, times in Counter(agents).items() if times > 1)
    if twice or not agents:
        raise ConfigError(
            f"environment.possible_agents must have agents, each once, got {list(patterns)}"
            + (f" with {twice[0]!r} twice" if twice else "")
        )
    return agents


def _written_out(pattern: str) -> Iterator[str]:
    # The text before the first range has no braces, so ranges expand from left to right.
    found = RANGE.fullmatch(pattern)
    if found is None:
        yield pattern
        return
    for number in range(int(found["first"]), int(found["last"]) + 1):
        # A pattern may have several ranges: the last one counts fastest.
        for rest in _written_out(found["after"]):
            yield f"{found['before']}{number}{rest}"
