"""Single play of one environment through PettingZoo's own interface.

The batched view checks the needs of training and stops at the first fault. Here play continues as
long as possible: all problems are reported at once, each rule once, and consequences of a fault are
not reported. `native_watch` adds checks that are only possible from outside.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.envs.checks.native_watch import SEED, EpisodeBroken, Look, Watch, are_equal
from arena.envs.probe.play import RandomActing
from arena.envs.value_rules import (
    Broken,
    flag_faults,
    read_mask,
    reset_told,
    reward_faults,
    step_told,
    stranger_faults,
)
from arena.errors import EnvironmentFault

MAX_EPISODES = 32
MAX_BROKEN = 6
"""Number of broken episodes after which play stops."""

MAX_DEAD = 2
"""Limit of successive turns of dead agents, as a multiple of the number of agents."""

Make = Callable[[], Any]
"""Factory of a ``pettingzoo.AECEnv`` or ``ParallelEnv``."""


Told = Mapping[str, object]
"""Values that an environment returned in one call, by name, for a comparison. They are not kept,
because
the environment may overwrite them.
"""


def look(
    make: Make,
    *,
    spec: EnvironmentSpec,
    num_decisions: int,
    seconds: float = math.inf,
    seen: Look | None = None,
) -> Look:
    """Play random legal actions.

    Args:
        make: Factory of the environment, called again after it has raised.
        spec: Environment's spec.
        num_decisions: Decisions after which play ends, unless `MAX_EPISODES` come first.
        seconds: Time limit of play.
        seen: Findings to add to. None: new ones.
    """
    seen = Look() if seen is None else seen
    until_s = time.monotonic() + seconds
    for _ in told(make, spec=spec, seen=seen):
        if seen.decisions >= num_decisions or time.monotonic() > until_s:
            break
    return seen


def first_difference(
    make: Make, *, spec: EnvironmentSpec, num_calls: int, seconds: float = math.inf
) -> str | None:
    """Return the first difference of two runs with the same seeds and actions, stepped in turns.

    Args:
        make: Factory of the environment.
        spec: Environment's spec.
        num_calls: Most calls of ``step``.
        seconds: Time limit.

    Returns:
        The difference and its place; None: no difference.
    """
    until_s = time.monotonic() + seconds
    runs = (told(make, spec=spec, seen=Look()) for _ in range(2))
    # Values are compared at once, because the environment may overwrite them in its next step.
    for call, (one, other) in enumerate(zip(*runs, strict=False)):
        for what, part in one.items():
            if not are_equal(part, other.get(what)):
                return f"{what}, {'after reset' if call == 0 else f'in call {call}'}"
        if call >= num_calls or time.monotonic() > until_s:
            break
    return None


def told(make: Make, *, spec: EnvironmentSpec, seen: Look) -> Iterator[Told]:
    """Play random episodes, and yield the returned values after each reset and step."""
    watch = Watch(spec=spec, seen=seen)
    acting = _Acting(spec)
    play = _play_parallel if spec.api == "parallel" else _play_in_turns
    env, num_broken = None, 0
    try:
        for _ in range(MAX_EPISODES):
            if env is None:
                # After a broken episode the environment's state is unknown, so a new one is made.
                env = make()
            watch.begin(env)
            try:
                yield from play(env, acting=acting, watch=watch)
            except EpisodeBroken:
                num_broken += 1
                _close(env)
                env = None
                if num_broken == MAX_BROKEN:
                    return
    finally:
        _close(env)


def _close(env: Any) -> None:  # noqa: ANN401
    # A broken environment may also fail to close, and its fault is reported already.
    with contextlib.suppress(Exception):
        if env is not None:
            env.close()


class _Acting:
    """Source of legal actions in the environment's own form."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        self._specs = spec.agent_specs
        self._random = RandomActing(spec, seed=SEED)

    def act(self, agent: str, observation: object, info: object) -> tuple[Any, Broken | None]:
        """Return an action, and the rule that the action mask breaks, if any."""
        layout = self._random.layouts[agent]
        spec = self._specs[agent]
        if spec.mask in ("observation", "beside") and _lacks_mask(observation):
            return self._random.draw(agent, None), _no_mask(agent, observation)
        mask = _mask(spec, observation, info)
        legal, broken = None, None
        if mask is not None:
            legal, broken = read_mask(agent, mask, layout=layout)
        return self._random.draw(agent, legal), broken


def _mask(spec: AgentSpec, observation: object, info: object) -> object:
    """Return the mask, if there is one."""
    holder = info if spec.mask == "info" else observation
    if spec.mask is None or not isinstance(holder, Mapping):
        return None
    mask: object = holder.get("action_mask")
    return mask


def _lacks_mask(observation: object) -> bool:
    return isinstance(observation, Mapping) and observation.get("action_mask") is None


def _no_mask(agent: str, observation: object) -> Broken:
    """Return the rule that an observation without the mask of its space breaks."""
    keys = ", ".join(map(repr, observation)) if isinstance(observation, Mapping) else ""
    text = f"agent {agent!r}: the part 'action_mask' must be there, it is not: there are {keys}"
    # Without the mask, the next action may be an illegal one, so later faults are doubtful.
    return Broken(rule="no action mask", text=text, agent=agent, in_doubt=True)


def _play_parallel(env: Any, *, acting: _Acting, watch: Watch) -> Iterator[Told]:  # noqa: ANN401
    with watch.calling("environment in reset"):
        result = env.reset(seed=watch.seed)
    try:
        observations, infos, broken = reset_told(result)
    except EnvironmentFault as fault:
        raise watch.stop("reset", str(fault)) from fault
    watch.note(broken)
    ended: Mapping[str, Any] = {}
    is_first = True
    yield _told_parallel(env, observations=observations, infos=infos)
    while True:
        deciding = _deciding(env, observations, ended=ended, watch=watch)
        if not deciding:
            if is_first:
                text = "after reset an agent must be alive and have an observation"
                raise watch.stop("after reset", text)
            return
        is_first = False
        watch.compare({agent: observations[agent] for agent in deciding})
        actions = {}
        for agent in deciding:
            watch.observed(agent, observations[agent])
            actions[agent], fault_of_mask = acting.act(agent, observations[agent], infos.get(agent))
            watch.decides(agent)
            watch.note([fault_of_mask])
        with watch.stepping(actions):
            result = env.step(actions)
        observations, rewards, terminations, truncations, infos = _step_told(
            result, acted=deciding, watch=watch
        )
        # Any truthy flag counts here; a flag that is no bool was reported above.
        ended = {
            agent: terminations.get(agent) or truncations.get(agent) for agent in watch.spec.agents
        }
        yield _told_parallel(
            env,
            observations=observations,
            infos=infos,
            rewards=rewards,
            terminations=terminations,
            truncations=truncations,
        )


def _deciding(
    env: Any,  # noqa: ANN401
    observations: Mapping[str, Any],
    *,
    ended: Mapping[str, Any],
    watch: Watch,
) -> list[str]:
    """Return the deciding agents; in PettingZoo, one without an observation is dead."""
    known = watch.spec.agent_specs
    with watch.calling("reading agents"):
        agents = list(env.agents)
    watch.note(stranger_faults(agents, has="a place in agents", known=known))
    watch.note(stranger_faults(list(observations), has="an observation", known=known))
    # Unknown agents were reported already; they have no spaces to play with.
    return [a for a in agents if a in known and a in observations and not ended.get(a)]


def _step_told(result: object, *, acted: list[str], watch: Watch) -> tuple[Mapping[str, Any], ...]:
    try:
        parts, broken = step_told(result, acted=acted)
    except EnvironmentFault as fault:
        raise watch.stop("step", str(fault)) from fault
    watch.note(broken)
    observations, rewards, terminations, truncations, _ = parts
    _check_results(rewards, terminations, truncations, watch=watch)
    for agent in acted:
        # With both flags the agent terminated, so its last observation is not used for
        # bootstrapping.
        if truncations.get(agent) and not terminations.get(agent):
            _check_last(agent, observations.get(agent), watch=watch)
    return parts


def _check_results(
    rewards: Mapping[str, Any],
    terminations: Mapping[str, Any],
    truncations: Mapping[str, Any],
    *,
    watch: Watch,
) -> None:
    watch.note(reward_faults(rewards, known=watch.spec.agent_specs))
    watch.paid(rewards)
    watch.note(flag_faults("terminations", terminations))
    watch.note(flag_faults("truncations", truncations))


def _check_last(agent: str, observation: object, *, watch: Watch) -> None:
    """Check a truncated agent's last observation, which training bootstraps from."""
    if observation is None:
        text = f"agent {agent!r} was truncated and must have a last observation, got None"
        watch.note([Broken(rule="last observation", text=text, agent=agent)])
    else:
        watch.observed(agent, observation)


def _told_parallel(
    env: Any,  # noqa: ANN401
    *,
    observations: Mapping[str, Any],
    infos: Mapping[str, Any],
    **results: object,
) -> Told:
    parts: dict[str, object] = {"agents": tuple(env.agents), **results}
    parts |= {f"the observation of {agent!r}": seen for agent, seen in observations.items()}
    return {**parts, **_info_masks(infos)}


def _info_masks(infos: Mapping[str, Any]) -> dict[str, object]:
    return {
        f"the action mask of {agent!r}": info["action_mask"]
        for agent, info in infos.items()
        if isinstance(info, Mapping) and "action_mask" in info
    }


def _play_in_turns(env: Any, *, acting: _Acting, watch: Watch) -> Iterator[Told]:  # noqa: ANN401
    with watch.calling("environment in reset"):
        env.reset(seed=watch.seed)
    with watch.calling("reading agents and agent_selection"):
        first = env.agent_selection if env.agents else None
        alive = first is not None and not _is_dead(env, first)
    if not alive:
        text = f"after reset an agent must be alive and on turn, got {first!r}"
        raise watch.stop("after reset", text)
    num_dead, patience = 0, MAX_DEAD * len(watch.spec.agents)
    # Flags stay until an agent is removed, so agents whose end was checked are remembered.
    dead: set[str] = set()
    while True:
        with watch.calling("reading agents and agent_selection"):
            if not env.agents:
                return
            agent = env.agent_selection
            is_there = agent in env.agents
        if agent not in watch.spec.agent_specs:
            (stranger,) = stranger_faults([agent], has="a turn", known=watch.spec.agent_specs)
            raise watch.stop(stranger.rule, stranger.text)
        if not is_there:
            text = f"agent {agent!r} is on turn and must be in agents, which has {env.agents}"
            raise watch.stop("on turn", text)
        if _is_dead(env, agent):
            num_dead += 1
            if num_dead > patience:
                _check_all_dead(env, last=agent, watch=watch)
                return
            with watch.calling(f"step(None) of agent {agent!r}, which is dead,"):
                env.step(None)
            continue
        num_dead = 0
        seen, action = _decide(env, agent, acting=acting, watch=watch)
        # The observation is yielded before the step, which may overwrite it.
        yield {"who decides": agent, f"the observation of {agent!r}": seen}
        with watch.stepping(action):
            env.step(action)
        _check_turn(env, dead=dead, watch=watch)
        yield {
            name: dict(getattr(env, name, {}))
            for name in ("rewards", "terminations", "truncations")
        }


def _decide(env: Any, agent: str, *, acting: _Acting, watch: Watch) -> tuple[object, Any]:  # noqa: ANN401
    """Return the observation of an agent on turn, and its action."""
    with watch.calling(f"observe({agent!r})"):
        observation: object = env.observe(agent)
    watch.observed(agent, observation)
    views = {agent: observation}
    for other in watch.rivals_in_view(agent):
        # Training never makes this call, so an exception in it is ignored.
        with contextlib.suppress(Exception):
            if other in env.agents and not _is_dead(env, other):
                views[other] = env.observe(other)
    watch.compare(views)
    # A missing or broken attribute is reported in `_check_turn`.
    infos = getattr(env, "infos", {})
    info = infos.get(agent) if isinstance(infos, Mapping) else None
    action, broken = acting.act(agent, observation, info)
    watch.decides(agent)
    watch.note([broken])
    return observation, action


def _is_dead(env: Any, agent: str) -> bool:  # noqa: ANN401
    return bool(env.terminations.get(agent) or env.truncations.get(agent))


def _check_turn(env: Any, *, dead: set[str], watch: Watch) -> None:  # noqa: ANN401
    """Check the values for all agents after a step in turns."""
    told_of = {}
    for name in ("rewards", "terminations", "truncations", "infos"):
        with watch.calling(f"reading {name}"):
            values = getattr(env, name)
        if not isinstance(values, Mapping):
            raise watch.stop(name, f"{name} must be a dictionary by agent, got {values!r}")
        told_of[name] = values
        missing = [agent for agent in env.agents if agent not in values]
        watch.note(
            Broken(
                rule=f"no {name}",
                text=f"{name} must have an entry of every agent in agents, {agent!r} has none",
                agent=agent,
            )
            for agent in missing
        )
    rewards, terminations, truncations, _ = told_of.values()
    _check_results(rewards, terminations, truncations, watch=watch)
    for agent in watch.spec.agents:
        if agent in dead or not (terminations.get(agent) or truncations.get(agent)):
            continue
        dead.add(agent)
        if not terminations.get(agent):
            with watch.calling(f"observe({agent!r}), which was truncated,"):
                # The observation is read now, as in Arena's batch: at the agent's turn it may be
                # missing.
                last = env.observe(agent)
            _check_last(agent, last, watch=watch)


def _check_all_dead(env: Any, *, last: str, watch: Watch) -> None:  # noqa: ANN401
    # If all agents are dead, they simply stay, as PettingZoo's own test demands.
    if not all(_is_dead(env, agent) for agent in env.agents):
        text = f"only dead agents are on turn, the last is {last!r}, but some of {env.agents} live"
        raise watch.stop("only dead", text)
