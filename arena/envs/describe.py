"""Inspection of one environment: the facts that other parts are checked against.

Runs in the short-lived child of `arena.envs.inspect`, and in `arena.envs.checks.check`. Torch-free.

Tests: `tests/arena/envs/test_inspect.py`, `tests/arena/envs/test_agents.py`.
"""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from importlib import metadata
from itertools import islice
from typing import Any, Literal, cast

from arena.environment_spec import (
    AgentSpec,
    EnvironmentRequest,
    EnvironmentSpec,
    MaskPlace,
    SpaceJson,
)
from arena.envs.batched.find import check_backend, find_game, game_facts, names_code
from arena.envs.findings import with_others
from arena.envs.openspiel.game import canonical_game_id, is_openspiel, openspiel_facts
from arena.envs.pettingzoo.states import describe_state, no_state
from arena.envs.registry import TWINS, canonical_id, home_module, make_environment, native_api
from arena.envs.spaces.observations import describe
from arena.envs.value_rules import reset_told
from arena.errors import ConfigError, EnvironmentFault
from arena.spaces import ActionLayout, UnusableSpace
from arena.users_code import pass_interrupt, raised

MASK_SEED = 0
"""Seed of the resets that look for masks; any one will do."""

MAX_AGENTS = 4096
"""Most agents of an environment: each has a column in every table."""

RANGE = re.compile(r"(?P<before>[^{}]*)\{(?P<first>\d+)\.\.(?P<last>\d+)\}(?P<after>.*)")
"""Range of agents, such as ``walker_{0..9}``."""


def populations_of(spec: EnvironmentSpec) -> dict[str, tuple[str, ...]]:
    """Group agents with equal specs; each group is named by its first agent."""
    populations: dict[str, list[str]] = {}
    for agent in spec.agents:
        # Specs hold dictionaries, which are not hashable, so their text is the key.
        populations.setdefault(repr(spec.agent_specs[agent]), []).append(agent)
    return {agents[0]: tuple(agents) for agents in populations.values()}


def environment_facts(request: EnvironmentRequest) -> EnvironmentSpec:
    """Make an environment, reset it, read its facts and close it.

    Raises:
        EnvironmentUnavailable: If there is no such id, or a package is missing.
        ConfigError: If it cannot be made, has agents or spaces that Arena cannot train, or lacks
            the backend or the state.
        EnvironmentFault: If its reset fails.
    """
    environment_id, kwargs = request.environment_id, request.kwargs
    if is_openspiel(environment_id):
        _must_be_plain(request)
        # The table of twins avoids importing the twin's class, which needs torch.
        has_twin = canonical_game_id(environment_id) in TWINS
        check_backend(request.backend, environment_id, has_game=has_twin)
        return openspiel_facts(environment_id, kwargs=kwargs)
    if names_code(environment_id):
        # Batched games are looked up first, because PettingZoo could not make their class.
        game_class = find_game(environment_id, launch_directory=request.launch_directory)
        check_backend(request.backend, environment_id, has_game=game_class is not None)
        if game_class is not None:
            _must_be_plain(request)
            return game_facts(environment_id, game_class, kwargs=kwargs)
    else:
        has_twin = canonical_id(environment_id) in TWINS
        check_backend(request.backend, environment_id, has_game=has_twin)
    api = native_api(environment_id, kwargs=kwargs, launch_directory=request.launch_directory)
    env = make_environment(
        environment_id, kwargs=kwargs, api=api, launch_directory=request.launch_directory
    )
    try:
        agents = agents_of(env, environment_id=environment_id, declared=request.possible_agents)
        # Infos are read before the spaces: an environment that creates agents has their spaces
        # only during an episode.
        first = partial(_first_infos, env, api=api, request=request)
        infos = first(seed=MASK_SEED)
        specs = _agent_specs(env, agents)
        state = describe_state(env, environment_id=environment_id) if request.reads_state else None
        # The second reset comes last, because it replaces the episode that the facts above were
        # read from.
        first(seed=MASK_SEED + 1)
        _same_after_another_reset(env, specs)
    finally:
        # A check continues after an error of `close`, and reports it later.
        with suppress(Exception) if request.lenient else nullcontext():
            env.close()
    return EnvironmentSpec(
        id=canonical_id(environment_id),
        kwargs=dict(kwargs),
        api=api,
        agents=agents,
        # Only the first reset's infos have been read; the second reset only compares spaces.
        agent_specs=_with_info_masks(specs, infos=infos),
        versions=_versions(home_module(environment_id)),
        state=state,
    )


def _must_be_plain(request: EnvironmentRequest) -> None:
    """Refuse options that only a PettingZoo environment has."""
    if request.reads_state:
        raise no_state(request.environment_id, why="it is no PettingZoo environment")
    if request.possible_agents is not None:
        raise ConfigError(
            f"environment.possible_agents must be left out: {request.environment_id} itself says "
            "who plays"
        )


def agent_spec(env: Any, agent: str) -> AgentSpec:  # noqa: ANN401
    """Return one agent's spaces; masks in infos are found only after a reset.

    Raises:
        ConfigError: If a space is not supported; names the agent.
    """
    observation = _space(env, agent, name="observation")
    action = _space(env, agent, name="action")
    try:
        has_choices = _has_choices(action)
    except UnusableSpace as error:
        raise ConfigError(f"agent {agent!r}: action space {error}") from None
    mask: MaskPlace | None = None
    members = cast("dict[str, SpaceJson]", observation.get("spaces", {}))
    if has_choices and observation["kind"] == "Dict" and "action_mask" in members:
        # In PettingZoo's form the observation is the inner one. Any other Dict with a mask keeps
        # its further parts.
        if set(members) == {"observation", "action_mask"}:
            observation, mask = members["observation"], "observation"
        else:
            seen = {name: space for name, space in members.items() if name != "action_mask"}
            observation, mask = {"kind": "Dict", "spaces": seen or members}, "beside"
    return AgentSpec(observation=observation, action=action, mask=mask)


def mask_like(observation: SpaceJson, action: SpaceJson) -> str | None:
    """Return the key of a part of an observation that has a 0 or 1 for each action.

    Return None if there is no such part, or several.
    """
    parts = observation.get("spaces")
    if observation["kind"] != "Dict" or not isinstance(parts, Mapping) or not _has_choices(action):
        return None
    size = ActionLayout.from_json(action, continuous="squashed").num_logits
    found = [name for name, part in parts.items() if _is_flags(part, size=size)]
    return str(found[0]) if len(found) == 1 and len(parts) > 1 else None


def _is_flags(space: SpaceJson, *, size: int) -> bool:
    """Return whether a space consists of ``size`` numbers, each 0 or 1."""
    if tuple(cast("Sequence[int]", space.get("shape", ()))) != (size,):
        return False
    if space["kind"] == "MultiBinary":
        return True
    # Bounds that are equal everywhere are described by one number.
    is_whole = str(space.get("dtype")).startswith(("int", "uint", "bool"))
    return space["kind"] == "Box" and is_whole and (space["low"], space["high"]) == (0, 1)


def _space(env: Any, agent: str, *, name: Literal["observation", "action"]) -> SpaceJson:  # noqa: ANN401
    try:
        space = env.observation_space(agent) if name == "observation" else env.action_space(agent)
    except BaseException as error:
        pass_interrupt(error)
        # A user's environment may raise anything.
        raise ConfigError(
            raised(
                f"agent {agent!r} must have an {name} space after every reset (give each agent of "
                f"possible_agents its entry in {name}_spaces), asking for it",
                error,
            )
        ) from error
    try:
        return describe(space)
    except ConfigError as error:
        raise ConfigError(f"agent {agent!r}: {name} space {error}") from None


def _same_after_another_reset(
    env: Any,  # noqa: ANN401
    specs: Mapping[str, AgentSpec],
) -> None:
    """Refuse an environment whose spaces have other sizes in each episode.

    Raises:
        ConfigError: If a space has changed.
    """
    for agent, before in specs.items():
        after = agent_spec(env, agent)
        for name in ("observation", "action"):
            one, other = getattr(before, name), getattr(after, name)
            if one != other:
                raise ConfigError(
                    f"agent {agent!r} must have the same {name} space in every episode: a network "
                    f"has one size. It had {dict(one)} after reset(seed={MASK_SEED}) and "
                    f"{dict(other)} after reset(seed={MASK_SEED + 1}). Wrap the environment: pad "
                    f"to the largest, and mask actions that are not there"
                )


def _first_infos(
    env: Any,  # noqa: ANN401
    *,
    api: str,
    request: EnvironmentRequest,
    seed: int,
) -> Mapping[str, object]:
    try:
        result = env.reset(seed=seed)
        # A ParallelEnv returns its infos, an AECEnv has them as an attribute.
        infos = {} if api == "parallel" else env.infos
    except BaseException as error:
        pass_interrupt(error)
        # A user's environment may raise anything.
        what = f"environment {request.environment_id} in reset"
        raise EnvironmentFault(raised(what, error)) from error
    if api == "parallel":
        try:
            _, infos, broken = reset_told(result)
        except EnvironmentFault as fault:
            raise EnvironmentFault(f"environment {request.environment_id}: {fault}") from fault
        # `arena envs check` is lenient: it goes on, and reports this breach with all others.
        if broken and not request.lenient:
            raise EnvironmentFault(f"environment {request.environment_id}: {broken[0].text}")
    return cast("Mapping[str, object]", infos if isinstance(infos, Mapping) else {})


def _agent_specs(env: Any, agents: Sequence[str]) -> dict[str, AgentSpec]:  # noqa: ANN401
    """Return the spaces of all agents.

    Raises:
        ConfigError: If spaces are not supported: all of them in one message.
    """
    specs: dict[str, AgentSpec] = {}
    wrong: dict[str, list[str]] = {}
    for agent in agents:
        try:
            specs[agent] = agent_spec(env, agent)
        except ConfigError as error:
            # One mistake of several agents is reported once.
            why = str(error).removeprefix(f"agent {agent!r}")
            wrong.setdefault(why, []).append(agent)
    if wrong:
        told = (with_others(f"agent {named[0]!r}{why}", named) for why, named in wrong.items())
        raise ConfigError("; ".join(told))
    return specs


def _with_info_masks(
    specs: Mapping[str, AgentSpec], *, infos: Mapping[str, object]
) -> dict[str, AgentSpec]:
    """Set the mask place ``info``: one agent's mask in infos counts for all with equal spaces."""
    # Agents with equal spaces share the mask's place: where agents take turns, perhaps only the
    # agent on turn has a mask, and some agents appear late.
    masked = [
        (specs[agent].observation, specs[agent].action)
        for agent, info in infos.items()
        if agent in specs and isinstance(info, Mapping) and "action_mask" in info
        if _has_choices(specs[agent].action)
    ]
    return {
        agent: AgentSpec(observation=spec.observation, action=spec.action, mask="info")
        if spec.mask is None and (spec.observation, spec.action) in masked
        else spec
        for agent, spec in specs.items()
    }


def _has_choices(action: SpaceJson) -> bool:
    # Choices do not depend on the way of bounding numbers.
    return ActionLayout.from_json(action, continuous="squashed").num_logits > 0


def _versions(module: str) -> dict[str, str]:
    names = dict.fromkeys(["pettingzoo", "gymnasium", *_distributions(module.partition(".")[0])])
    return {name: metadata.version(name) for name in names}


def _distributions(package: str) -> list[str]:
    """Return the installed distributions of a package; none for a module of the user's own."""
    try:
        return [metadata.distribution(package).name]
    except metadata.PackageNotFoundError:
        # The distribution may have another name, and finding it takes reading all installed
        # metadata.
        found = importlib.util.find_spec(package)
        if found is None or "site-packages" not in (found.origin or ""):
            return []
        return sorted(set(metadata.packages_distributions().get(package, [])))


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
    # PettingZoo lets an environment omit the attribute or leave it empty.
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
    # One more than the limit suffices to refuse a huge range without expanding it.
    agents = tuple(islice(written, MAX_AGENTS + 1))
    if len(agents) > MAX_AGENTS:
        raise ConfigError(
            f"environment.possible_agents must be at most {MAX_AGENTS}, got more: {list(patterns)}"
        )
    # Two ranges, or a range and a name, may overlap.
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
