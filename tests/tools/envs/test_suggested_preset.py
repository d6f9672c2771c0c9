"""What a configuration suggests, from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml

from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.envs.checks.check import EnvironmentReport
from arena.envs.checks.measure import Measured
from arena.envs.checks.roles import Role
from arena.envs.findings import Finding
from arena.envs.spaces.observations import describe
from arena.learners.smoke_training import SmokeTraining
from populations.config.run_config import validate_config
from populations.config.run_file import new_run_file
from populations.yaml_documents import read_document
from tools.envs.suggested_preset import _yaml, preset_text, suggested_sides
from tools.launch.sizing import crowd_line

VECTOR = gymnasium.spaces.Box(-1.0, 1.0, (4,))
BOARD = gymnasium.spaces.Box(0, 1, (3, 3, 2), np.int8)
PICTURE = gymnasium.spaces.Box(0, 255, (280, 480, 3), np.uint8)


def make_report(
    agents: Sequence[str],
    *,
    same: Sequence[Sequence[str]] | None = None,
    space: gymnasium.Space[Any] = VECTOR,
    api: Any = "parallel",
    twin: str | None = None,
    **measured: Any,
) -> EnvironmentReport:
    facts = AgentSpec(
        observation=describe(space), action=describe(gymnasium.spaces.Discrete(3)), mask=None
    )
    groups = [[agent] for agent in agents] if same is None else same
    found: dict[str, Any] = {"episodes": 3, "mean_length": 25.0, "rewarded_share": 0.5}
    return EnvironmentReport(
        spec=EnvironmentSpec(
            id="some.module:make",
            kwargs={},
            api=api,
            agents=tuple(agents),
            agent_specs=dict.fromkeys(agents, facts),
        ),
        measured=Measured(
            same_rewards=tuple(tuple(group) for group in groups),
            env_steps_per_s=1000.0,
            **{**found, **measured},
        ),
        twin=twin,
    )


NINE = [f"walker_{number}" for number in range(9)]


@pytest.mark.parametrize(
    ("agents", "same", "sides"),
    [
        (["only"], None, None),
        (["player_0", "player_1"], None, None),
        (["player_0", "player_1"], [["player_0", "player_1"]], {"team": ["*"]}),
        (["a_0", "a_1", "b_0"], [["a_0", "a_1"], ["b_0"]], {"a": ["a_*"], "b": ["b_0"]}),
        (["a_0", "a_1", "b_0"], [["a_0"], ["a_1", "b_0"]], None),
        (NINE, None, None),
        ([*NINE, "boss"], None, {"walker": ["walker_*"], "boss": ["boss"]}),
    ],
)
def test_who_seems_to_win_together(
    agents: list[str], same: list[list[str]] | None, sides: object
) -> None:
    assert suggested_sides(make_report(agents, same=same))[0] == sides


def test_nobody_is_a_team_because_nobody_was_paid() -> None:
    report = make_report(["a", "b"], same=[["a", "b"]], rewarded_share=0.0)
    assert suggested_sides(report)[0] is None


def test_globs_stand_for_nobody_else() -> None:
    agents = ["red_1", "red_2", "red_queen"]
    sides, _ = suggested_sides(make_report(agents, same=[agents[:2], agents[2:]]))
    assert sides == {"red": ["red_1", "red_2"], "red_queen": ["red_queen"]}


def settings(report: EnvironmentReport, **arguments: Any) -> dict[str, Any]:
    given = {"id": report.spec.id, **arguments.pop("given", {})}
    document = yaml.safe_load(preset_text(report, environment=given, **arguments))
    new_run_file(validate_config(document), report.spec, name="test", launch_directory=".")
    return dict(document)


def rollout(document: dict[str, Any]) -> tuple[object, int]:
    (population,) = document["populations"].values()
    return document["environment"]["num_envs"], population["hyperparameters"]["rollout_length"]


@pytest.mark.slow
def test_batches_follow_speed_agents_and_memory() -> None:
    pair = ["player_0", "player_1"]
    # With 25 steps of 1 ms there are 256 environments. 4096 decisions would be 8 calls of step.
    assert rollout(settings(make_report(pair))) == ("auto", 16)
    # With 1,000 steps of 1 ms there are 8 environments (14.7 by the time). 4096 decisions would be
    # 512 calls.
    assert rollout(settings(make_report(pair, api="aec", mean_length=1000.0))) == ("auto", 256)
    assert rollout(settings(make_report(pair, api="aec", twin="a:B"))) == (1024, 16)
    # With 200 agents 32,768 decisions in 32 calls are 5 environments, so 4; 4096 decisions are 5
    # calls.
    many = [f"walker_{number}" for number in range(200)]
    assert rollout(settings(make_report(many))) == ("auto", 16)
    # A picture has 403 kB: 8 environments, 2 agents and 32 steps of them are 206 MB.
    assert rollout(settings(make_report(pair, space=PICTURE))) == ("auto", 32)


def test_a_rollout_fits_the_number_of_environments_that_was_set() -> None:
    report = make_report(["player_0", "player_1"])
    # 4096 decisions are 2 in each step of 16 environments.
    assert rollout(settings(report, given={"num_envs": 16})) == (16, 128)


def test_what_the_user_has_set_stays() -> None:
    report = make_report(["player_0", "player_1"])
    given = {
        "kwargs": {"size": 3},
        "num_envs": 5,
        "sides": {"both": ["*"]},
        "outcome": {"info": "score"},
        "continuous_actions": "clipped",
    }
    environment = settings(report, given=given)["environment"]
    assert environment == {"id": "some.module:make", **given}


def test_budgets_follow_the_trial() -> None:
    report = make_report(["player_0", "player_1"])
    tried = settings(report, trial=SmokeTraining(agent_steps_per_s=4321.0))
    assert tried["ghosts"] == {"every_agent_steps": 60_000}
    halving = {"share": "halving", "initial": "sampled"}
    steps = {"ready_agent_steps": 100_000, "warm_up_agent_steps": 200_000}
    assert tried["pbt"] == {**halving, **steps}
    untried = settings(report)
    assert untried["pbt"] == halving
    assert untried["stop"] == tried["stop"]
    assert untried["stop"] == {"duration_s": 600, "agent_steps_per_policy": None}


@pytest.mark.parametrize(
    ("num_cores", "size"),
    # A policy needs a core for a minute before a comparison: two minutes of each core, of ten.
    [(1, 2), (2, 4), (3, 6), (4, 8), (64, 8)],
)
def test_as_many_policies_as_cores_can_compare_in_time(num_cores: int, size: int) -> None:
    document = settings(make_report(["a", "b"]), num_cores=num_cores)
    assert [one["size"] for one in document["populations"].values()] == [size]


def test_populations_share_the_cores_and_teams_train_at_once() -> None:
    agents = ["a_0", "a_1", "b_0"]
    roles = (Role(agents=("a_0", "a_1"), why="x"), Role(agents=("b_0",), why="y"))

    def sizes(**given: object) -> list[int]:
        document = settings(make_report(agents, roles=roles), num_cores=4, given=given)
        return [one["size"] for one in document["populations"].values()]

    assert sizes() == [4, 4]
    assert sizes(sides={"team": ["*"]}) == [8, 8]
    # A single policy could not be compared with any other.
    document = settings(make_report(agents, roles=roles), num_cores=1)
    assert [one["size"] for one in document["populations"].values()] == [2, 2]


def test_the_size_says_why_and_is_no_crowd() -> None:
    report = make_report(["a", "b"])
    for num_cores in (1, 2, 64):
        text = preset_text(report, environment={"id": "x.y:z"}, num_cores=num_cores)
        config = validate_config({**yaml.safe_load(text), "learners": num_cores})
        run_file = new_run_file(config, report.spec, name="test", launch_directory=".")
        assert crowd_line(run_file.config) == ""
    (line,) = (line for line in text.splitlines() if "size:" in line)
    assert line.endswith(
        "64 cores train 128 policies until they are compared, in a fifth of 10 minutes; more than "
        "8 were not measured"
    )


@pytest.mark.parametrize(
    "value", ["true", "false", "null", "yes", "on", "a", "a.b:C", "1", "", "x: y", 1.5, None, True]
)
def test_a_value_is_read_as_it_was_written(value: object) -> None:
    assert read_document(f"key: {_yaml(value)}\n", name="preset") == {"key": value}


def test_zeros_and_ones_are_not_normalized() -> None:
    for space, network in ((BOARD, {"normalize_observations": False}), (VECTOR, {})):
        (population,) = settings(make_report(["a", "b"], space=space))["populations"].values()
        assert population["network"] == {
            "encoder": "auto",
            "hidden_sizes": [128, 128],
            **network,
        }


def test_every_line_but_the_plainest_says_why() -> None:
    text = preset_text(make_report(["a", "b"], mean_length=None, episodes=0), environment={})
    assert "no episode ended at random" in text
    assert "1,000 environment steps/s of one core" in text
    assert all(len(line.split("#")[0].rstrip()) <= 80 for line in text.splitlines())


def test_a_problem_is_one_line_that_every_file_takes() -> None:
    problem = Finding(problem="raised \ud800, \x1b[31m\nand more", mend="nothing")
    text = preset_text(make_report(["a", "b"]), environment={}, problems=[problem])
    assert "#   problem: raised \\ud800, \\x1b[31m\n" in text
    assert yaml.safe_load(text.encode())
