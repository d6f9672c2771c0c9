"""Roles: when a policy leaves a ghost, and when it starts again from elsewhere.

A main agent trains for ever. A main exploiter looks for what beats the main agents of today, a
league exploiter for what beats everybody; both are reset after they have left a ghost, so that they
go on looking for something new.

Sources: Vinyals et al., "Grandmaster level in StarCraft II using multi-agent reinforcement
learning" (Nature, 2019), section "Multi-agent learning" and the pseudocode in its supplementary
data, which disagree about main agents (the text: a ghost each phase; the pseudocode: one as soon as
everybody is beaten, at the latest after two phases). Resets to the exploiter nearest to even:
TLeague's AdaEvoExploiter (Sun et al., 2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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

LEAGUE_RESET_PROBABILITY = 0.25
"""Of a league exploiter, after a ghost."""

EVEN = 0.5
EVEN_FROM, EVEN_TO = 0.2, 0.5
"""Win rates between which an exploiter's ghost is worth going on from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRule:
    """When a policy leaves a ghost.

    Attributes:
        phase_agent_steps: At least so many steps after the last one.
        timeout_phases: At the latest after so many phases.
        win_rate: Before the timeout, only if everybody is beaten more often than this.
        constants: ``paper``: main agents leave one each phase, whom they beat or not.
    """

    phase_agent_steps: int
    timeout_phases: int = 2
    win_rate: float = 0.7
    constants: Constants = "pseudocode"

    def why(self, role: str, *, agent_steps: int, win_rates: FloatArray) -> str | None:
        """Say why it is time for a ghost, in words; None if it is not.

        Args:
            role: The policy's.
            agent_steps: Since its last ghost.
            win_rates: Against those it has to beat, of those that it has met: the latest main
                agents for a main exploiter, all ghosts for the others. float64 [N], N may be 0.
        """
        if agent_steps < self.phase_agent_steps:
            return None
        if role == MAIN and self.constants == "paper":
            return f"{agent_steps} agent steps since the last one"
        if win_rates.size and float(win_rates.min()) > self.win_rate:
            return f"it beats all {win_rates.size} that it has met more often than {self.win_rate}"
        if agent_steps >= self.timeout_phases * self.phase_agent_steps:
            return f"{agent_steps} agent steps since the last one: {self.timeout_phases} phases"
        return None

    def next_mark(self, agent_steps: int) -> int:
        """Return agent steps until the next moment at which a ghost may be due, from 1.

        Args:
            agent_steps: Since the last one.
        """
        phase = self.phase_agent_steps
        return phase - agent_steps if agent_steps < phase else phase - agent_steps % phase


def reset_probability(role: str, *, league_exploiter: float = LEAGUE_RESET_PROBABILITY) -> float:
    """Return how often a policy starts again after it has left a ghost.

    Args:
        role: The policy's. Main agents never do, main exploiters always.
        league_exploiter: How often league exploiters do.
    """
    if role == LEAGUE_EXPLOITER:
        return league_exploiter
    return 1.0 if role == MAIN_EXPLOITER else 0.0


def is_reset(probability: float, *, rng: np.random.Generator) -> bool:
    """Return whether a policy starts again. One draw, whatever the probability."""
    return bool(rng.random() < probability)


def has_exploiters(counts: Mapping[str, int]) -> bool:
    """Return whether a population with these roles has policies that are no main agents."""
    return any(count > 0 for role, count in counts.items() if role != MAIN)


def nearest_even(win_rates: Mapping[PlayerId, float]) -> PlayerId | None:
    """Return the former exploiter to go on from: the one closest to winning half of its matches.

    Args:
        win_rates: Win rates of ghosts of the same role against the main agents.

    Returns:
        None if none is between ``EVEN_FROM`` and ``EVEN_TO``: all are too weak, or done.
    """
    worth = {
        player: win_rate for player, win_rate in win_rates.items() if EVEN_FROM < win_rate < EVEN_TO
    }
    return min(worth, key=lambda player: (EVEN - worth[player], player), default=None)


def deal_roles(counts: Mapping[str, int], *, size: int) -> list[str]:
    """Return the role of each member: main agents first, then exploiters.

    Args:
        counts: How many of a role; main agents are the rest, unless they are counted, too.
        size: Size of the population.

    Raises:
        ValueError: If a role is unknown, the counts do not add up, or there is no main agent.
    """
    unknown = [role for role in counts if role not in ROLES]
    if unknown:
        raise ValueError(f"a role must be one of {', '.join(ROLES)}, not {unknown[0]!r}")
    num_others = sum(count for role, count in counts.items() if role != MAIN)
    num_main = counts.get(MAIN, size - num_others)
    if num_main < 1:
        raise ValueError(f"at least 1 of {size} policies must be main, {num_main} would be")
    if num_main + num_others != size:
        raise ValueError(f"must add up to the size {size}, got {num_main + num_others}")
    return [MAIN] * num_main + [
        role for role in ROLES if role != MAIN for _ in range(counts.get(role, 0))
    ]
