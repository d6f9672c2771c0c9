from __future__ import annotations

import importlib
import sys

import pytest

from arena.envs.registry import (
    Api,
    canonical_id,
    home_module,
    known_environments,
    make_environment,
    native_api,
)
from arena.errors import ConfigError, EnvironmentUnavailable

FORMS: list[tuple[str, Api]] = [
    ("classic/connect_four-v3", "aec"),
    ("classic/connect_four_v3", "aec"),
    ("classic/tictactoe", "aec"),
    ("classic/rps-v2", "parallel"),
    ("mpe2/simple_spread_v3", "parallel"),
    ("mpe2/simple_spread-v3", "parallel"),
    ("mpe/simple_spread_v3", "parallel"),
    ("mpe2.simple_spread_v3:parallel_env", "parallel"),
    ("mpe2.simple_spread_v3:env", "aec"),
    ("pettingzoo.classic.rps.rps:env", "aec"),
    ("environments:ScriptedTurns", "aec"),
    ("environments:ScriptedParallel", "parallel"),
]


@pytest.mark.parametrize(("environment_id", "api"), FORMS)
def test_every_form_of_id_makes_an_environment(environment_id: str, api: Api, assets: str) -> None:
    assert native_api(environment_id, kwargs={}, launch_directory=assets) == api
    env = make_environment(environment_id, kwargs={}, api=api, launch_directory=assets)
    assert hasattr(env, "agent_iter") == (api == "aec")
    env.reset(seed=1)
    assert env.agents
    env.close()


def test_both_forms_of_a_registered_id(assets: str) -> None:
    for environment_id in ("classic/rps-v2", "mpe2/simple_tag_v3"):
        env = make_environment(environment_id, kwargs={}, api="aec", launch_directory=assets)
        assert hasattr(env, "agent_iter")
        env.close()


def test_kwargs_reach_the_factory(assets: str) -> None:
    env = make_environment(
        "mpe2/simple_spread_v3",
        kwargs={"N": 2, "max_cycles": 4},
        api="parallel",
        launch_directory=assets,
    )
    assert len(env.possible_agents) == 2
    env.reset(seed=1)
    steps = 0
    while env.agents:
        env.step(dict.fromkeys(env.agents, 0))
        steps += 1
    assert steps == 4
    env.close()


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("classic/connect_four_v3", "classic/connect_four-v3"),
        ("classic/connect_four", "classic/connect_four-v3"),
        ("mpe/simple_tag-v3", "mpe2/simple_tag_v3"),
        ("magent/battle-v4", "magent2/battle_v4"),
        ("some.module:factory", "some.module:factory"),
    ],
)
def test_one_way_to_write_an_id(written: str, canonical: str) -> None:
    assert canonical_id(written) == canonical


@pytest.mark.parametrize(
    ("environment_id", "near"),
    [
        ("classic/tictactoo-v3", "classic/tictactoe-v3"),
        ("classic/connect_four-v2", "classic/connect_four-v3"),
        ("clasic/rps_v2", "classic/rps-v2"),
        ("mpe2/simple_spred_v3", "mpe2/simple_spread_v3"),
        ("mpe/simple_tag_v9", "mpe2/simple_tag_v3"),
        ("games/nim.py", "that of a file is games.nim:NAME"),
    ],
)
def test_an_unknown_id_names_the_nearest(environment_id: str, near: str, assets: str) -> None:
    with pytest.raises(EnvironmentUnavailable, match="there is no environment") as caught:
        make_environment(environment_id, kwargs={}, api="aec", launch_directory=assets)
    assert near in str(caught.value)


@pytest.mark.parametrize(
    ("environment_id", "line"),
    [
        ("atari/pong-v3", "pip install 'pettingzoo[atari]'"),
        ("package_that_is_not_there.games:env", "pip install package_that_is_not_there"),
        ("environments:needs_a_missing_package", "pip install package_that_is_not_there"),
    ],
)
def test_a_missing_package_names_what_installs_it(
    environment_id: str, line: str, assets: str
) -> None:
    with pytest.raises(EnvironmentUnavailable) as caught:
        make_environment(environment_id, kwargs={}, api="aec", launch_directory=assets)
    assert line in str(caught.value)
    assert environment_id in str(caught.value)


@pytest.mark.parametrize(
    ("package", "environment_id", "requirement"),
    [
        ("mpe2", "mpe2/simple_tag_v3", "mpe2"),
        ("mpe2", "mpe2.simple_tag_v3:env", "mpe2"),
        ("magent2", "magent/battle-v4", "magent2"),
        ("chess", "classic/chess-v6", "'pettingzoo[classic]'"),
        ("chess", "pettingzoo.classic.chess.chess:env", "'pettingzoo[classic]'"),
        ("pymunk", "butterfly/pistonball-v6", "'pettingzoo[butterfly]'"),
        ("Box2D", "sisl/multiwalker-v9", "'pettingzoo[sisl]'"),
    ],
)
def test_a_missing_package_names_what_a_clone_can_install_too(
    package: str,
    environment_id: str,
    requirement: str,
    assets: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = (package, environment_id.partition("/")[2].partition("-")[0] or "classic.chess")
    for name in list(sys.modules):
        if name.partition(".")[0] == package or f".{ours[1]}" in name:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    # PettingZoo caches the factories that it has imported.
    importlib.import_module("pettingzoo.env_registry.spec")._load_env_creator.cache_clear()
    with pytest.raises(EnvironmentUnavailable) as caught:
        make_environment(environment_id, kwargs={}, api="aec", launch_directory=assets)
    assert f"pip install {requirement}" in str(caught.value)


@pytest.mark.parametrize(
    ("environment_id", "kwargs", "api", "text"),
    [
        ("classic/tictactoe-v3", {"size": 4}, "aec", "TypeError"),
        ("classic/tictactoe-v3", {}, "parallel", "has no parallel form"),
        ("environments:ScriptedTurns", {}, "parallel", "makes aec environments, not parallel"),
        ("environments:not_an_environment", {}, "aec", "must make a pettingzoo.AECEnv"),
        ("environments:CLOCKWORK", {}, "aec", "must name a factory"),
        ("environments:nothing", {}, "aec", "has no 'nothing'"),
    ],
)
def test_what_a_user_wrote_wrong_is_said(
    environment_id: str, kwargs: dict[str, object], api: Api, text: str, assets: str
) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        make_environment(environment_id, kwargs=kwargs, api=api, launch_directory=assets)
    assert not isinstance(caught.value, EnvironmentUnavailable)


def test_the_list_tells_what_is_there() -> None:
    known = {environment.id: environment for environment in known_environments()}
    assert list(known) == sorted(known)
    assert known["classic/connect_four-v3"].installed
    assert known["classic/connect_four-v3"].apis == ("aec",)
    assert known["classic/rps-v2"].apis == ("parallel", "aec")
    assert known["mpe2/simple_tag_v3"].installed
    assert known["mpe2/simple_tag_v3"].apis == ("parallel", "aec")


def test_every_listed_id_of_mpe2_exists(assets: str) -> None:
    names = [one.id for one in known_environments() if one.package == "mpe2"]
    assert len(names) > 5
    for name in names:
        make_environment(name, kwargs={}, api="parallel", launch_directory=assets).close()


def test_the_home_of_an_environment() -> None:
    assert home_module("classic/rps-v2").startswith("pettingzoo.classic")
    assert home_module("mpe/simple_tag-v3") == "mpe2.simple_tag_v3"
    assert home_module("some.module:factory") == "some.module"
