from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from pathlib import Path

import pytest

from arena.environment_spec import AgentSpec, EnvironmentSpec
from populations.config.resume import other_code, other_facts, other_versions
from populations.config.run_config import validate_config
from populations.config.run_file import RunFile, new_run_file

BOX = {"kind": "Box", "shape": [4], "dtype": "float32", "low": 0.0, "high": 1.0}
WIDER = {**BOX, "shape": [5]}
FOUR, FIVE = ({"kind": "Discrete", "n": n, "start": 0} for n in (4, 5))
AGENT = AgentSpec(observation=BOX, action=FOUR, mask=None)
SPEC = EnvironmentSpec(
    id="game:Game",
    kwargs={},
    api="parallel",
    agents=("a_0", "a_1"),
    agent_specs={"a_0": AGENT, "a_1": AGENT},
    versions={"pettingzoo": "1.27.0"},
)


@pytest.fixture
def run_file(tmp_path: Path) -> RunFile:
    config = validate_config({"environment": {"id": "game:Game"}, "learners": 2})
    made = new_run_file(config, SPEC, name="game", launch_directory="/somewhere")
    made = replace(made, code={"game": "1" * 64, "rules": "2" * 64})
    # As a resume has it: from the file.
    made.save(tmp_path / "run.yaml")
    return RunFile.load(tmp_path / "run.yaml")


def of_all(**facts: object) -> EnvironmentSpec:
    changed = replace(AGENT, **facts)  # type: ignore[arg-type]
    return replace(SPEC, agent_specs={"a_0": changed, "a_1": changed})


def test_the_same_environment_differs_in_nothing(run_file: RunFile) -> None:
    assert other_facts(run_file.spec, SPEC) == []
    # Packages are no facts of the environment, nor is a state that nobody had asked for.
    assert other_facts(run_file.spec, replace(SPEC, versions={}, state=BOX)) == []


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (of_all(observation=WIDER), "observation.shape was [4] and is [5] (of a_0, a_1)"),
        (of_all(action=FIVE), "action.n was 4 and is 5 (of a_0, a_1)"),
        (of_all(mask="info"), "mask was None and is 'info' (of a_0, a_1)"),
        (
            replace(SPEC, agent_specs={"a_0": AGENT, "a_1": replace(AGENT, action=FIVE)}),
            "action.n was 4 and is 5 (of a_1)",
        ),
        (
            replace(SPEC, agents=("a_0", "b"), agent_specs={"a_0": AGENT, "b": AGENT}),
            "agents was ['a_0', 'a_1'] and is ['a_0', 'b']",
        ),
        (replace(SPEC, api="aec"), "api was 'parallel' and is 'aec'"),
    ],
)
def test_each_other_fact_is_told_with_both_values(
    run_file: RunFile, spec: EnvironmentSpec, told: str
) -> None:
    assert other_facts(run_file.spec, spec) == [told]


def test_a_state_that_critics_read_is_a_fact(run_file: RunFile) -> None:
    old = replace(run_file.spec, state=BOX)
    assert other_facts(old, replace(SPEC, state=WIDER)) == ["state.shape was [4] and is [5]"]


def test_code_that_both_have_is_compared(run_file: RunFile) -> None:
    now = {"game": "1" * 64, "rules": "3" * 64, "more": "4" * 64}
    assert other_code(run_file.code, now) == {"rules": ("2" * 64, "3" * 64)}
    assert other_code({}, now) == {}


def test_packages_that_are_others_here_are_named(run_file: RunFile) -> None:
    assert other_versions(run_file.versions).keys() <= {
        "pettingzoo"
    }  # the specification's is made up
    versions = {**run_file.versions, "torch": "1.0", "no-such-package": "3"}
    found = other_versions(versions)
    assert found["torch"] == ("1.0", importlib.metadata.version("torch"))
    assert found["no-such-package"] == ("3", None)
    assert "numpy" not in found
