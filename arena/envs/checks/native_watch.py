"""Observation of one environment's return values: broken rules, arrays that change after they were
returned, observations that never change, numbers outside the declared bounds.

Tests: `tests/arena/envs/checks/test_check.py`, `tests/arena/envs/checks/test_time_limit.py`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict

from arena.environment_spec import EnvironmentSpec
from arena.envs.findings import MEND_STEP, Finding, Findings, finding_of
from arena.envs.value_rules import Broken, observation_faults
from arena.errors import EnvironmentFault
from arena.spaces import ObservationLayout
from arena.users_code import own_lines, pass_interrupt, raised

SEED = 7
KEPT = 4
"""Observations of each agent that are kept and compared with copies."""

MAX_KEPT = 64
"""Most observations kept, of all agents."""

NUM_SHOWN = 12
"""Agents of a turn order that are named."""

MAX_SHOWN = 200
"""Length at which the actions of a call are cut off in messages."""


class EpisodeBroken(Exception):
    """Error: the episode cannot continue; its cause has been recorded."""


@dataclass(slots=True, kw_only=True)
class Look:
    """Findings of examining one environment.

    Attributes:
        decisions: Decisions made.
        calls: Calls of ``step``.
        stepping_s: Seconds that they took.
        orders: Order of turns in each episode.
        agents: Agents that ever had a decision.
        aliased: First agent with an observation that changed after it was returned.
        out_of_bounds: First observation outside its space, by agent.
        unchanging: Observation that was the same at each of at least two decisions, by agent.
        alike: Groups of agents with equal spaces whose observations never differed at the same
        time. compared: Agents that were observed at the same time as another one of their group.
        reward_low: Smallest reward, at most 0; None: there was none.
        reward_high: Largest reward, at least 0.
        findings: Broken rules.
    """

    decisions: int = 0
    calls: int = 0
    stepping_s: float = 0.0
    orders: list[list[str]] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)
    aliased: str | None = None
    out_of_bounds: dict[str, str] = field(default_factory=dict)
    unchanging: dict[str, str] = field(default_factory=dict)
    alike: list[list[str]] = field(default_factory=list)
    compared: set[str] = field(default_factory=set)
    reward_low: float | None = None
    reward_high: float | None = None
    findings: Findings = field(default_factory=Findings)

    @property
    def problems(self) -> list[Finding]:
        """Return the findings that must be fixed."""
        return self.findings.listed()

    @property
    def same_views(self) -> tuple[tuple[str, ...], ...]:
        """Return groups of agents with equal observations whenever several could be observed."""
        groups = (tuple(a for a in group if a in self.compared) for group in self.alike)
        return tuple(sorted(group for group in groups if len(group) > 1))

    @property
    def turn_order(self) -> str:
        """Describe the order of turns in words."""
        longest: list[str] = max(self.orders, key=len, default=[])
        cycle = list(dict.fromkeys(longest))
        if len(cycle) > NUM_SHOWN:
            return f"one at a time, {len(cycle)} agents"
        # In a regular order each agent is always followed by the same one.
        follower = dict(zip(cycle, cycle[1:] + cycle[:1], strict=True))
        regular = all(
            follower.get(one) == other for order in self.orders for one, other in pairwise(order)
        )
        return f"{', '.join(cycle)} {'in turn' if regular else 'in changing order'}"


_CHANGED = object()
"""Replaces an agent's first observation once a different one has been observed."""


class Watch:
    """Observer that compares return values with the rules, and with their later content.

    Args:
        spec: Environment's spec.
        seen: Findings to add to.

    Attributes:
        in_doubt: Whether this episode has broken a rule that may make the environment raise: later
            errors may be consequences and are not reported.
        seed: Seed of the episode.
    """

    def __init__(self, *, spec: EnvironmentSpec, seen: Look) -> None:
        self.spec = spec
        self.seen = seen
        self.in_doubt = False
        # The first `begin` increments it to SEED.
        self.seed = SEED - 1
        self._env: Any = None
        self._layouts = {
            agent: ObservationLayout.from_json(facts.observation)
            for agent, facts in spec.agent_specs.items()
        }
        self._returned: list[tuple[str, npt.NDArray[Any], npt.NDArray[Any]]] = []
        self._first: dict[str, object] = {}
        self._began = 0
        by_spaces: dict[str, list[str]] = {}
        for agent, facts in spec.agent_specs.items():
            by_spaces.setdefault(f"{facts.observation} {facts.action}", []).append(agent)
        seen.alike = list(by_spaces.values())

    def begin(self, env: Any) -> None:  # noqa: ANN401
        """Begin another episode."""
        self._env = env
        self.seed += 1
        self.in_doubt = False
        self._began = self.seen.decisions
        self.seen.orders.append([])

    @property
    def where(self) -> str:
        """Describe the position in the episode."""
        decision = self.seen.decisions - self._began
        return f"decision {decision} of the episode of reset(seed={self.seed})"

    def note(self, faults: Iterable[Broken | None]) -> None:
        """Record broken rules."""
        for fault in faults:
            if fault is not None:
                finding = finding_of(EnvironmentFault(fault.text), where=self.where)
                self.seen.findings.add(fault.rule, finding, agent=fault.agent)
                self.in_doubt |= fault.in_doubt

    def stop(self, rule: str, text: str) -> EpisodeBroken:
        """Record a broken rule that prevents continuing, and return the error to raise."""
        self.note([Broken(rule=rule, text=text)])
        return EpisodeBroken(text)

    @contextlib.contextmanager
    def calling(self, what: str, *, mend: str | None = None) -> Iterator[None]:
        """Call the environment, which may raise anything.

        Args:
            what: Name of the method, with its arguments.
            mend: Advice; None: the one for the message.

        Raises:
            EpisodeBroken: If the environment raised.
        """
        try:
            yield
        # The fault is recorded already and must not count as an error of the environment.
        except EpisodeBroken:
            raise
        except BaseException as error:
            pass_interrupt(error)
            if not self.in_doubt:
                # The lines in the user's files distinguish different mistakes.
                lines = own_lines(error)
                finding = finding_of(EnvironmentFault(raised(what, error)), where=self.where)
                if mend is not None:
                    finding = Finding(problem=finding.problem, mend=mend)
                rule = (type(error).__name__, lines or what.partition("(")[0])
                self.seen.findings.add(rule, finding)
            raise EpisodeBroken(what) from error

    @contextlib.contextmanager
    def stepping(self, actions: object) -> Iterator[None]:
        """Call ``step`` with an action, or with those of all agents."""
        shown = repr(actions)
        shown = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}..."
        began_s = time.perf_counter()
        with self.calling(f"step({shown})", mend=MEND_STEP):
            yield
        # A step that raised is not counted, because its time says nothing about the speed.
        self.seen.stepping_s += time.perf_counter() - began_s
        self.seen.calls += 1
        self._look_again()

    def decides(self, agent: str) -> None:
        """Record the decision of an agent."""
        self.seen.decisions += 1
        self.seen.agents.add(agent)
        self.seen.orders[-1].append(agent)

    def paid(self, rewards: Mapping[str, Any]) -> None:
        """Record rewards."""
        seen = self.seen
        for reward in rewards.values():
            try:
                value = float(reward)
            except (TypeError, ValueError):
                continue
            if np.isfinite(value):
                seen.reward_low = min(value, seen.reward_low or 0.0)
                seen.reward_high = max(value, seen.reward_high or 0.0)

    def observed(self, agent: str, observation: object) -> None:
        """Record and check an observation of a known agent."""
        seen, place = self.seen, self.spec.agent_specs[agent].mask
        faults = list(
            observation_faults(agent, observation, layout=self._layouts[agent], place=place)
        )
        self.note(faults)
        if seen.aliased is None and len(self._returned) < MAX_KEPT:
            # The array and a copy are kept, to detect later writes of the environment.
            self._returned += [(agent, array, array.copy()) for array in _arrays(observation)]
        if not faults and agent not in seen.out_of_bounds:
            space = self._env.observation_space(agent)
            if not _contains(space, observation):
                seen.out_of_bounds[agent] = _outside(observation, space)
        if agent not in self._first:
            # A copy is needed, because an array that is overwritten would always equal itself.
            self._first[agent] = deepcopy(observation)
        elif self._first[agent] is not _CHANGED:
            if are_equal(self._first[agent], observation):
                seen.unchanging[agent] = _values(observation)
            else:
                self._first[agent] = _CHANGED
                seen.unchanging.pop(agent, None)

    def rivals_in_view(self, agent: str) -> list[str]:
        """Return the agents whose observations have not differed from this agent's so far."""
        group = next((group for group in self.seen.alike if agent in group), [])
        return [other for other in group if other != agent]

    def compare(self, views: Mapping[str, object]) -> None:
        """Record which agents have equal observations at the same time, apart from action masks."""
        for group in list(self.seen.alike):
            first, *others = [agent for agent in group if agent in views] or [""]
            if not others:
                continue
            self.seen.compared.update((first, *others))
            seen = _without_mask(views[first])
            apart = [a for a in others if not are_equal(seen, _without_mask(views[a]))]
            if apart:
                group[:] = [agent for agent in group if agent not in apart]
                # The differing agents may still be alike among themselves.
                self.seen.alike.append(apart)

    def _look_again(self) -> None:
        """Check the kept arrays for changes, once a call."""
        for owner, array, copy in self._returned:
            if self.seen.aliased is None and not _same(array, copy):
                self.seen.aliased = owner
        # The list is emptied when full, so that arrays of later calls are checked, too.
        if len(self._returned) >= min(MAX_KEPT, KEPT * len(self.spec.agents)):
            self._returned.clear()


def _without_mask(observation: object) -> object:
    if not isinstance(observation, Mapping):
        return observation
    return {key: part for key, part in observation.items() if key != "action_mask"}


def _contains(space: Any, observation: object) -> bool:  # noqa: ANN401
    try:
        return bool(space.contains(observation))
    except BaseException as error:
        pass_interrupt(error)
        # A user's space may raise anything for a user's observation.
        return False


def _outside(observation: object, space: object) -> str:
    text = f"{_values(observation)} is not in {' '.join(str(space).split())[:120]}"
    for name, found, wanted in _wrong_dtypes(observation, space):
        text += f"; {name}is {found}, its space {wanted}: array.astype(np.{wanted})"
    return text


def _wrong_dtypes(observation: object, space: object, name: str = "") -> Iterator[tuple[str, ...]]:
    """Yield path, dtype and expected dtype of each array that its Box does not accept."""
    if isinstance(space, Dict) and isinstance(observation, Mapping):
        for key, part in space.spaces.items():
            yield from _wrong_dtypes(observation.get(key), part, f"{key!r} ")
    elif (
        isinstance(space, Box)
        and isinstance(observation, np.ndarray)
        # As in `Box.contains`, an array is outside if the cast to the space's dtype might lose
        # digits.
        and not np.can_cast(observation.dtype, space.dtype)
    ):
        yield name, str(observation.dtype), str(space.dtype)


def _values(observation: object) -> str:
    values = ", ".join(
        f"{array.dtype}{array.shape} in [{array.min()}, {array.max()}]"
        for array in _arrays(observation)
        if array.size and array.dtype.kind in "fiub"
    )
    return values or type(observation).__name__


def _same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    # Only floats may be NaN; `equal_nan` raises for text.
    are_floats = one.dtype.kind == other.dtype.kind == "f"
    return np.array_equal(one, other, equal_nan=are_floats)


def are_equal(one: object, other: object) -> bool:
    """Return whether two values of an environment are equal in all parts; NaN equals NaN."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return _same(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(are_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(are_equal, one, other))
    # The text is compared, because comparing users' objects may raise, and NaN's text equals
    # itself.
    return type(one) is type(other) and repr(one) == repr(other)


def _arrays(observation: object) -> Iterator[npt.NDArray[Any]]:
    """Yield all arrays in a nested observation."""
    if isinstance(observation, np.ndarray):
        yield observation
    elif isinstance(observation, Mapping):
        for part in observation.values():
            yield from _arrays(part)
    elif isinstance(observation, tuple):
        for part in observation:
            yield from _arrays(part)
