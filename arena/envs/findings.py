"""Findings of a check, and ways to fix them, for users with a new environment.

Tests: `tests/arena/envs/checks/test_check.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from arena.users_code import split_lines

SEE_README = (
    "the rule is in the message; PettingZoo's page 'Custom Environments' says what is expected of "
    "an environment"
)

NUM_SHOWN = 3
"""Most further agents that are named."""

# The order matters: a message may contain several fragments, and the first match counts.
MENDS: tuple[tuple[str, str], ...] = (
    (
        "is on turn and must be in agents",
        "leave agents that have ended in agents, with their flags, until their own turn: "
        "step(None) takes each out (self._was_dead_step(action)), and nothing else does",
    ),
    (
        # This is PettingZoo's message if rewards has other agents than agents.
        "agents should not be given a reward if they were terminated",
        "rewards must have exactly the agents of agents: those that have ended stay in both until "
        "their own turn, in which step(None) takes each out (self._was_dead_step(action))",
    ),
    (
        # PettingZoo raises this when it removes an agent a second time.
        ", which is dead, raised",
        "begin step with `if self.terminations[agent] or self.truncations[agent]: "
        "return self._was_dead_step(action)`, and take nobody out of agents before that",
    ),
    (
        "attribute 'close'",
        "inherit from pettingzoo.ParallelEnv or AECEnv, whose close does nothing, or write a close "
        "that releases what the environment holds",
    ),
    (
        "must have shape",
        "return arrays of exactly the declared shape, or declare the shape that you return "
        "(observation.shape against observation_space(agent).shape)",
    ),
    (
        "must have dtype",
        "return numbers of the declared kind: observation.astype(space.dtype), or declare another "
        "dtype",
    ),
    (
        "must be one number, not an array",
        "return a number for each agent: float(reward), or reward.item()",
    ),
    (
        "a reward must be finite",
        "look for divisions by zero, logarithms of zero and overflows in the reward; clip it",
    ),
    (
        "must be finite and at most",
        "look for divisions by zero and overflows in the observation; clip or rescale what may "
        "be that large",
    ),
    (
        "an action mask must allow",
        "an agent on turn must have a legal action: add one that passes, or end its episode",
    ),
    (
        "an action mask must be",
        "return an int8 array with one number for each action: 1 legal, 0 not",
    ),
    (
        "is no possible agent",
        "name every agent that may ever appear in possible_agents, or in "
        "environment.possible_agents of the configuration",
    ),
    (
        "step returned no",
        "rewards, terminations and truncations need an entry for every agent that had acted, in "
        "the step in which it dies too",
    ),
    (
        "must be there, it is not",
        "every observation must have every key of its Dict space: has one another name in "
        "observe than in observation_space?",
    ),
    (
        "reset must return",
        "end reset of a ParallelEnv with `return observations, infos`: two dictionaries by agent, "
        "infos perhaps {agent: {} for agent in self.agents}",
    ),
    (
        "step must return",
        "end step of a ParallelEnv with `return observations, rewards, terminations, truncations, "
        "infos`: five dictionaries by agent",
    ),
    (
        "must be a dictionary by agent",
        "rewards, terminations, truncations, infos and observations are dictionaries with an entry "
        "for each agent",
    ),
    (
        "must have an entry of every agent",
        "set rewards, terminations, truncations and infos in reset and step for every agent of "
        "self.agents",
    ),
    (
        "must be True or False",
        "terminations and truncations are bool for each agent: bool(value)",
    ),
    (
        "after reset an agent must",
        "reset(seed=...) must put the agents into agents, set terminations and truncations to "
        "False, and (in turns) choose agent_selection",
    ),
    (
        "only dead agents are on turn",
        "begin step with `if self.terminations[agent] or self.truncations[agent]: "
        "return self._was_dead_step(action)`, which takes dead agents out",
    ),
    (
        "must have a last observation",
        "in the step in which an agent is truncated its observation must still be returned: "
        "training goes on from what it saw last",
    ),
    (
        # This entry must follow "after reset an agent must", whose messages contain "in reset" as
        # well.
        " in reset",
        "reset(seed=..., options=...) must work again and again, with every seed",
    ),
    (
        "must be in [",
        "observations must be members of the declared space: check its n and start, or its bounds",
    ),
)
"""Ways to fix a fault, by a part of an `EnvironmentFault`'s message; the first match counts."""

MEND_STEP = (
    "step must take every action of action_space(agent) that the mask allows; declare a smaller "
    "space, or mask what is not possible"
)
MEND_SEED = (
    "draw everything random from a generator that reset(seed=...) makes: "
    "self.np_random, _ = gymnasium.utils.seeding.np_random(seed); never from random, np.random or "
    "a clock"
)
MEND_EMPTY = (
    "at the end of a game set terminations of all agents to True (truncations, where it is cut off "
    "after max_cycles), and pay in rewards; if the game is only that long, play longer: --seconds"
)
MEND_CONTRACT = (
    "PettingZoo's documentation of the API says what its test expects; run it alone to debug: "
    "from pettingzoo.test import {test}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Problem that must be fixed before an environment is worth training in.

    Attributes:
        problem: Description with agent, call, rule and value.
        mend: Way to fix it.
    """

    problem: str
    mend: str


def finding_of(fault: Exception | str, *, where: str = "", otherwise: str = "") -> Finding:
    """Make a finding of a fault.

    Args:
        fault: Fault, or its message.
        where: Place of the fault, if the fault does not contain it.
        otherwise: Way to fix a fault of unknown kind; empty: the most likely one.
    """
    text = f"{where}: {fault}" if where else str(fault)
    # Only the message is classified, because lines of a traceback may contain any text.
    told = split_lines(text)[0]
    for fragment, mend in MENDS:
        if fragment in told:
            return Finding(problem=text, mend=mend)
    # For an unknown error in a step, the action is the most likely cause.
    return Finding(
        problem=text, mend=otherwise or (MEND_STEP if " in step" in told else SEE_README)
    )


@dataclass(slots=True)
class Findings:
    """Findings, each broken rule once: the first occurrence, with the other agents concerned."""

    _first: dict[Hashable, Finding] = field(default_factory=dict)
    # The inner dictionary serves as a set that keeps the order of insertion.
    _agents: dict[Hashable, dict[str, None]] = field(default_factory=dict)

    def add(self, rule: Hashable, finding: Finding, *, agent: str | None = None) -> None:
        """Record a broken rule.

        Args:
            rule: Broken rule.
            finding: Finding, used for the first occurrence.
            agent: Agent concerned.
        """
        self._first.setdefault(rule, finding)
        if agent is not None:
            self._agents.setdefault(rule, {})[agent] = None

    def listed(self) -> list[Finding]:
        """Return every broken rule, in order of occurrence."""
        return [
            replace(finding, problem=with_others(finding.problem, list(self._agents.get(rule, ()))))
            for rule, finding in self._first.items()
        ]


def with_others(problem: str, agents: Sequence[str]) -> str:
    """Append the other agents concerned to a problem of the first one."""
    # The problem's own text names the first agent.
    if len(agents) < 2:
        return problem
    told, lines = split_lines(problem)
    # The agents are inserted before the lines of the user's code, which end the text.
    return f"{told} (likewise {some(agents[1:])}){lines}"


def some(agents: Sequence[str]) -> str:
    """Name the first agents, and say how many more there are."""
    shown = ", ".join(map(repr, agents[:NUM_SHOWN]))
    return f"{shown} and {len(agents) - NUM_SHOWN} more" if len(agents) > NUM_SHOWN else shown
