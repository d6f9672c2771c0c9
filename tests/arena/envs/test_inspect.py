from __future__ import annotations

import json
import sys
from dataclasses import asdict

import pytest

from arena.environment_spec import EnvironmentRequest
from arena.envs.describe import environment_facts
from arena.envs.inspect import inspect_environment
from arena.errors import ConfigError, EnvironmentFault, EnvironmentUnavailable
from tests.support import run_process


def test_connect_four(assets: str) -> None:
    spec = inspect_environment(
        EnvironmentRequest("classic/connect_four_v3", launch_directory=assets)
    )
    assert spec.id == "classic/connect_four-v3"
    assert spec.api == "aec"
    assert spec.agents == ("player_0", "player_1")
    facts = spec.agent_specs["player_1"]
    assert facts.observation == {
        "kind": "Box",
        "shape": [6, 7, 2],
        "dtype": "int8",
        "low": 0,
        "high": 1,
    }
    assert facts.action == {"kind": "Discrete", "n": 7, "start": 0}
    assert facts.mask == "observation"
    assert set(spec.versions) == {"pettingzoo", "gymnasium"}


@pytest.mark.slow
def test_the_child_says_what_is_found_here(assets: str) -> None:
    for environment_id, kwargs in (
        ("mpe2/simple_tag_v3", {"num_good": 2}),
        ("environments:MaskedTurns", {"where": "info"}),
        ("environments:ScriptedParallel", {}),
    ):
        from_child = inspect_environment(
            EnvironmentRequest(environment_id, kwargs=kwargs, launch_directory=assets)
        )
        here = environment_facts(
            EnvironmentRequest(environment_id, kwargs=kwargs, launch_directory=assets)
        )
        assert from_child == here
        assert from_child.digest == here.digest
        json.dumps(asdict(from_child), allow_nan=False)


def test_versions_name_the_environments_package(assets: str) -> None:
    spec = inspect_environment(EnvironmentRequest("mpe2/simple_spread_v3", launch_directory=assets))
    assert set(spec.versions) == {"pettingzoo", "gymnasium", "mpe2"}
    assert spec.api == "parallel"


def test_masks_in_info_count_for_all_agents_with_such_spaces(assets: str) -> None:
    kwargs = {"where": "info"}
    spec = environment_facts(
        EnvironmentRequest("environments:MaskedTurns", kwargs=kwargs, launch_directory=assets)
    )
    # After a reset only the agent on turn has a mask.
    assert {agent: facts.mask for agent, facts in spec.agent_specs.items()} == {
        "a": "info",
        "b": "info",
    }


def test_prints_do_not_corrupt_the_answer(assets: str) -> None:
    spec = inspect_environment(EnvironmentRequest("environments:Noisy", launch_directory=assets))
    assert spec.agents == ("a", "b")


@pytest.mark.parametrize(
    ("environment_id", "error", "text"),
    [
        ("classic/tictactoo-v3", EnvironmentUnavailable, "classic/tictactoe-v3"),
        ("atari/pong-v3", EnvironmentUnavailable, r"pip install 'pettingzoo\[atari\]'"),
        ("environments:not_an_environment", ConfigError, "must make a pettingzoo.AECEnv"),
        ("environments:PictureTurns", ConfigError, r"agent 'a': observation space Text\("),
        ("environments:Abrupt", EnvironmentFault, "SIGSEGV.*segmentation soon"),
    ],
)
def test_errors_come_back_as_themselves(
    environment_id: str, error: type[Exception], text: str, assets: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        inspect_environment(EnvironmentRequest(environment_id, launch_directory=assets))
    assert type(caught.value) is error
    assert "Traceback" not in str(caught.value)


def test_a_reset_that_raises_is_the_environments_fault(assets: str) -> None:
    with pytest.raises(EnvironmentFault, match="in reset raised RuntimeError: no board"):
        inspect_environment(
            EnvironmentRequest(
                "environments:FaultyTurns",
                kwargs={"fault": "reset_raises"},
                launch_directory=assets,
            )
        )


@pytest.mark.slow
def test_a_child_that_hangs_is_ended(assets: str) -> None:
    with pytest.raises(EnvironmentFault, match="not made and reset within 2 s"):
        inspect_environment(
            EnvironmentRequest("environments:Endless", launch_directory=assets), timeout_s=2.0
        )


def test_kwargs_must_be_plain_data(assets: str) -> None:
    with pytest.raises(ConfigError, match="must be plain data"):
        inspect_environment(
            EnvironmentRequest("classic/rps-v2", kwargs={"x": object()}, launch_directory=assets)
        )


def test_the_asking_half_imports_nothing_heavy() -> None:
    script = (
        "import sys, arena.envs.inspect; "
        "print([m for m in ('torch', 'pettingzoo', 'gymnasium', 'numpy') if m in sys.modules])"
    )
    done = run_process([sys.executable, "-c", script], check=True)
    assert done.stdout.strip() == "[]"
