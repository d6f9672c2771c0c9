"""Agents that seem to play one role, by their names, their number, and rewards of random play.

Agents with equal spaces may still have different tasks; policies that play both learn neither well.
Torch-free. Shapes: B environments, A agents.

Tests: `tests/arena/envs/checks/test_check.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

NUMBERED = re.compile(r"[-_]?\d+$")

SURE = 6.0
"""Standard errors above which the rewards of two kinds of agents differ; they must also differ in
each environment.
"""

ENOUGH_ENVS = 8
"""Number of environments below which rewards are not conclusive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Agents that seem to play one role.

    Attributes:
        agents: Agents in the environment's order.
        why: Difference from the first role; empty for the first role.
    """

    agents: tuple[str, ...]
    why: str = ""


def kinds_of(agents: Sequence[str]) -> dict[str, list[str]]:
    """Group agents by their names without numbers."""
    kinds: dict[str, list[str]] = {}
    for agent in agents:
        # A name that consists of digits only is kept, because nothing would be left of it.
        kinds.setdefault(NUMBERED.sub("", agent) or agent, []).append(agent)
    return kinds


def roles_of(agents: Sequence[str], rewards: npt.NDArray[np.float64]) -> tuple[Role, ...]:
    """Merge kinds of agents that are equal in number and rewards.

    Two teams with the same task (red and blue) are one role: they are equally many, and random play
    pays both the same, up to chance. Wolves and sheep are two.

    Args:
        agents: All A agents, in order.
        rewards: Total reward of each agent in each environment. float64 [B, A].
    """
    column = {agent: at for at, agent in enumerate(agents)}
    roles: list[list[list[str]]] = []
    why: list[str] = []
    for kind in kinds_of(agents).values():
        # [B, agents of the kind] -> [B]
        paid = rewards[:, [column[agent] for agent in kind]].mean(axis=1)
        reasons = []
        for role in roles:
            first = role[0]
            other = rewards[:, [column[agent] for agent in first]].mean(axis=1)
            reason = _difference(kind, first, paid=paid, other=other)
            if not reason:
                role.append(kind)
                break
            reasons.append(reason)
        else:
            roles.append([kind])
            # The first kind has no earlier one to differ from.
            why.append(reasons[0] if reasons else "")
    return tuple(
        Role(agents=tuple(agent for kind in role for agent in kind), why=reason)
        for role, reason in zip(roles, why, strict=True)
    )


def _difference(
    kind: Sequence[str],
    other_kind: Sequence[str],
    *,
    paid: npt.NDArray[np.float64],
    other: npt.NDArray[np.float64],
) -> str:
    """Describe the difference of two kinds; empty: none."""
    names = f"{kind[0]} is not as {other_kind[0]}"
    if len(kind) != len(other_kind):
        return f"{names}: there are {len(kind)} against {len(other_kind)}"
    by_env = paid - other
    # The numbers are equal, and there are too few environments to compare rewards.
    if len(by_env) < ENOUGH_ENVS:
        return ""
    # s / sqrt(B), with s the deviation of the paired differences d_b = paid_b - other_b
    error = float(by_env.std(ddof=1)) / math.sqrt(len(by_env))
    mean = float(by_env.mean())
    one_sided = bool((by_env > 0.0).all() or (by_env < 0.0).all())
    if one_sided and abs(mean) > SURE * error:
        return f"{names}: random play paid {paid.mean():.4g} against {other.mean():.4g} on average"
    return ""
