"""Looks at one environment and writes down what everything else is checked against.

Runs in the short-lived child of `arena.envs.inspect`, and in `arena.envs.check`. Torch-free.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from importlib import metadata
from typing import Any, Literal, cast

from arena.envs.batched.find import check_backend, find_game, game_facts, names_code
from arena.envs.batched.twins import TWINS
from arena.envs.openspiel import canonical_game_id, is_openspiel, openspiel_facts
from arena.envs.registry import canonical_id, home_module, make_environment, native_api
from arena.envs.spaces import describe
from arena.envs.spec import AgentSpec, EnvironmentSpec
from arena.errors import ConfigError, EnvironmentFault

MASK_SEED = 0
"""Any seed does: it is only looked at where the masks are."""


def environment_facts(
    environment_id: str,
    *,
    kwargs: Mapping[str, object],
    launch_directory: str,
    backend: str = "auto",
) -> EnvironmentSpec:
    """Make an environment, reset it, look at it and close it.

    Raises:
        EnvironmentUnavailable: If there is no such id, or a package is missing.
        ConfigError: If it cannot be made, has agents or spaces that Arena cannot train, or does not
            have this backend.
        EnvironmentFault: If its reset fails.
    """
    if is_openspiel(environment_id):
        has_twin = canonical_game_id(environment_id) in TWINS
        check_backend(backend, environment_id, has_game=has_twin)
        return openspiel_facts(environment_id, kwargs=kwargs)
    if names_code(environment_id):
        # Before PettingZoo is asked: a batched game is a class that it could not make.
        game_class = find_game(environment_id, launch_directory=launch_directory)
        check_backend(backend, environment_id, has_game=game_class is not None)
        if game_class is not None:
            return game_facts(environment_id, game_class, kwargs=kwargs)
    else:
        check_backend(backend, environment_id, has_game=canonical_id(environment_id) in TWINS)
    api = native_api(environment_id, kwargs=kwargs, launch_directory=launch_directory)
    env = make_environment(
        environment_id, kwargs=kwargs, api=api, launch_directory=launch_directory
    )
    try:
        agents = agents_of(env, environment_id=environment_id)
        infos = _first_infos(env, api=api, environment_id=environment_id)
        specs = {agent: agent_spec(env, agent) for agent in agents}
    finally:
        env.close()
    return EnvironmentSpec(
        id=canonical_id(environment_id),
        kwargs=dict(kwargs),
        api=api,
        agents=agents,
        agent_specs=_with_info_masks(specs, infos=infos),
        versions=_versions(home_module(environment_id)),
    )


def agents_of(env: Any, *, environment_id: str) -> tuple[str, ...]:  # noqa: ANN401
    """All agents that may appear.

    Raises:
        ConfigError: If they are not known beforehand, or not named by strings.
    """
    agents = getattr(env, "possible_agents", None)
    if not agents:
        raise ConfigError(
            f"environment.id {environment_id} must have possible_agents: all agents that may appear"
        )
    unnamed = [agent for agent in agents if not isinstance(agent, str)]
    if unnamed:
        raise ConfigError(
            f"environment.id {environment_id} must name its agents by strings, got {unnamed[0]!r}"
        )
    return tuple(agents)


def agent_spec(env: Any, agent: str) -> AgentSpec:  # noqa: ANN401
    """What one agent sees and does; masks in info show only after a reset.

    Raises:
        ConfigError: If a space is not supported; names the agent.
    """
    from gymnasium.spaces import Dict

    observation, action = env.observation_space(agent), env.action_space(agent)
    mask: Literal["observation"] | None = None
    if isinstance(observation, Dict) and set(observation.spaces) == {"observation", "action_mask"}:
        observation, mask = observation["observation"], "observation"
    described = {}
    for name, space in (("observation", observation), ("action", action)):
        try:
            described[name] = describe(space)
        except ConfigError as error:
            raise ConfigError(f"agent {agent!r}: {name} space {error}") from None
    if described["action"]["kind"] != "Discrete":
        raise ConfigError(
            f"agent {agent!r}: action space {action} is not supported yet: Discrete is"
        )
    return AgentSpec(observation=described["observation"], action=described["action"], mask=mask)


def _first_infos(env: Any, *, api: str, environment_id: str) -> Mapping[str, object]:  # noqa: ANN401
    try:
        if api == "parallel":
            _, infos = env.reset(seed=MASK_SEED)
        else:
            env.reset(seed=MASK_SEED)
            infos = env.infos
    except Exception as error:
        # The environment is a user's code and may raise anything.
        raise EnvironmentFault(
            f"environment {environment_id} raised {type(error).__name__} in reset: {error}"
        ) from error
    return cast("Mapping[str, object]", infos)


def _with_info_masks(
    specs: Mapping[str, AgentSpec], *, infos: Mapping[str, object]
) -> dict[str, AgentSpec]:
    """Enter the masks that are in info.

    Turn by turn only the agent on turn may have one, and others appear late: agents with spaces
    equal to those of one that has a mask have masks too.
    """
    masked = [
        (specs[agent].observation, specs[agent].action)
        for agent, info in infos.items()
        if agent in specs and isinstance(info, Mapping) and "action_mask" in info
    ]
    return {
        agent: AgentSpec(observation=spec.observation, action=spec.action, mask="info")
        if spec.mask is None and (spec.observation, spec.action) in masked
        else spec
        for agent, spec in specs.items()
    }


def _versions(module: str) -> dict[str, str]:
    names = dict.fromkeys(["pettingzoo", "gymnasium", *_distributions(module.partition(".")[0])])
    return {name: metadata.version(name) for name in names}


def _distributions(package: str) -> list[str]:
    """What is installed that has a package in it; nothing for a module of the user's own."""
    try:
        return [metadata.distribution(package).name]
    except metadata.PackageNotFoundError:
        # Its distribution has another name. Finding that reads all that is installed.
        found = importlib.util.find_spec(package)
        if found is None or "site-packages" not in (found.origin or ""):
            return []
        return sorted(set(metadata.packages_distributions().get(package, [])))
