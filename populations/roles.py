"""Roles of policies, which decide when a policy leaves a ghost and when its weights are reset.

A main agent trains without resets. A main exploiter searches for weaknesses of the current main
agents, a league exploiter for weaknesses of all players. Exploiters are reset to other weights
after they have left a ghost (a frozen copy), so that they keep finding new weaknesses.

Sources: Vinyals et al., "Grandmaster level in StarCraft II using multi-agent reinforcement
learning" (Nature, 2019), section "Multi-agent learning" and the pseudocode in its supplementary
data, which disagree about main agents (the text: a ghost each phase; the pseudocode: as soon as all
required opponents are beaten, at the latest after two phases). Resets to the former exploiter
whose win rate is nearest to 1/2: TLeague's AdaEvoExploiter (Sun et al., 2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from arena.types import PlayerId

FloatArray = npt.NDArray[np.float64]

Role = Literal["main", "main_exploiter", "league_exploiter"]
Constants = Literal["pseudocode", "paper"]
ROLES: tuple[str, ...] = get_args(Role)

MAIN: Role = "main"
MAIN_EXPLOITER: Role = "main_exploiter"
LEAGUE_EXPLOITER: Role = "league_exploiter"

# AlphaStar's pseudocode has this value.
LEAGUE_RESET_PROBABILITY = 0.25
"""Probability that a league exploiter is reset after it has left a ghost."""

EVEN = 0.5
EVEN_FROM, EVEN_TO = 0.2, 0.5
"""Range, without its ends, of the win rates of ghosts to which an exploiter is reset."""


def next_mark(agent_steps: int, *, phase: int) -> int:
    """Return the agent steps until a ghost may next be due, at least 1.

    Args:
        agent_steps: Agent steps since the last ghost.
        phase: Least number of agent steps between two ghosts.
    """
    # After the first phase, a ghost may be due at each multiple of the phase.
    return phase - agent_steps if agent_steps < phase else phase - agent_steps % phase


def reset_probability(role: str, *, league_exploiter: float = LEAGUE_RESET_PROBABILITY) -> float:
    """Return the probability that a policy is reset after it has left a ghost.

    Args:
        role: Role of the policy. Main agents are never reset, main exploiters always.
        league_exploiter: Probability for league exploiters.
    """
    if role == LEAGUE_EXPLOITER:
        return league_exploiter
    return 1.0 if role == MAIN_EXPLOITER else 0.0


def is_reset(probability: float, *, rng: np.random.Generator) -> bool:
    """Draw whether a policy is reset, with exactly one random number for any probability."""
    # The draw is never skipped, so that the numbers after it do not depend on the probability.
    return bool(rng.random() < probability)


def has_exploiters(counts: Mapping[str, int]) -> bool:
    """Return whether a population with these numbers of policies by role has any exploiter."""
    return any(count > 0 for role, count in counts.items() if role != MAIN)


def nearest_even(win_rates: Mapping[PlayerId, float]) -> PlayerId | None:
    """Return the former exploiter to continue from: the one closest to winning half of its matches.

    Args:
        win_rates: Win rates of ghosts of the same role against the main agents.

    Returns:
        The ghost; None if no win rate is between ``EVEN_FROM`` and ``EVEN_TO``: all ghosts are too
            weak, or already beat the main agents.
    """
    worth = {
        # Both ends are excluded: at 1/2 an exploiter already beats the main agents.
        player: win_rate
        for player, win_rate in win_rates.items()
        if EVEN_FROM < win_rate < EVEN_TO
    }
    # All win rates are below 1/2, so the difference is the distance. Ties go to the first by name.
    return min(worth, key=lambda player: (EVEN - worth[player], player), default=None)


def deal_roles(counts: Mapping[str, int], *, size: int) -> list[str]:
    """Return the role of each member of a population: main agents first, then exploiters.

    Args:
        counts: Number of members by role. Without a count for main agents, they are the rest.
        size: Size of the population.

    Raises:
        ValueError: If a role is unknown, the counts do not add up, or there is no main agent.
    """
    unknown = [role for role in counts if role not in ROLES]
    if unknown:
        raise ValueError(f"a role must be one of {', '.join(ROLES)}, not {unknown[0]!r}")
    # Exploiters are counted first, because main agents are the rest if `main` is left out.
    num_others = sum(count for role, count in counts.items() if role != MAIN)
    num_main = counts.get(MAIN, size - num_others)
    if num_main < 1:
        raise ValueError(f"at least 1 of {size} policies must be main, {num_main} would be")
    if num_main + num_others != size:
        raise ValueError(f"must add up to the size {size}, got {num_main + num_others}")
    # A policy's role follows from its number, so the order is that of ROLES and does not depend on
    # the order of the user's keys.
    return [MAIN] * num_main + [
        role for role in ROLES if role != MAIN for _ in range(counts.get(role, 0))
    ]
