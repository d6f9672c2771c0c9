"""Processes of environments and cores of learners: refusals, defaults, and a resume with others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from arena.envs.probe.pace import Pace
from arena.errors import ConfigError
from populations.config.resolve import resolve_config
from populations.config.run_config import validate_config
from populations.config.run_file import check_resume, learner_setup, new_run_file
from populations.errors import ResumeRefused
from tests.populations.controller.simulated import DUEL, duel_spec

PACE = Pace(
    episode_length=100.0,
    is_lower_bound=False,
    step_s=0.005,
    env_bytes=0,
    is_batched=False,
    machine_bytes=1 << 34,
)


def document(**environment: object) -> dict[str, object]:
    given = DUEL["environment"]
    assert isinstance(given, Mapping)
    return {**DUEL, "environment": {**given, "num_envs": 8, **environment}}


@pytest.mark.parametrize(
    ("environment", "environment_id", "text"),
    [
        ({"num_env_workers": 9}, None, "must be at most environment.num_envs, 8 .*, got 9"),
        ({"num_env_workers": 2}, "openspiel:hex", "must be 0 where OpenSpiel plays .*, got 2"),
        ({"num_env_workers": 2}, "classic/rps-v2", "must be 0 where a batched game steps"),
        (
            {"num_env_workers": 2, "backend": "batched"},
            "classic/rps-v2",
            "must be 0 where a batched game steps .*, got 2 with classic/rps-v2",
        ),
    ],
)
def test_processes_that_gain_nothing_are_refused(
    environment: Mapping[str, object], environment_id: str | None, text: str
) -> None:
    spec = duel_spec() if environment_id is None else replace(duel_spec(), id=environment_id)
    config = validate_config(document(**environment))
    with pytest.raises(ConfigError, match=rf"^environment.num_env_workers {text}"):
        resolve_config(config, spec, num_cores=2)


def test_a_users_batched_game_is_refused_where_it_was_played() -> None:
    config = validate_config(document(num_env_workers=2, num_envs="auto"))
    resolve_config(config, duel_spec(), num_cores=2, pace=PACE)
    with pytest.raises(ConfigError, match="must be 0 where a batched game steps"):
        resolve_config(config, duel_spec(), num_cores=2, pace=replace(PACE, is_batched=True))


def test_the_original_of_a_twin_is_stepped_by_processes() -> None:
    config = validate_config(document(num_env_workers=2, backend="pettingzoo"))
    resolve_config(config, replace(duel_spec(), id="classic/rps-v2"), num_cores=2)


@pytest.mark.parametrize("number", [-1, 1.5, "two"])
def test_what_is_no_number_of_processes_is_refused(number: object) -> None:
    with pytest.raises(ConfigError, match=r"environment\.num_env_workers"):
        validate_config(document(num_env_workers=number))


@pytest.mark.parametrize(("number", "learners"), [(0, 4), (1, 4), (2, 2), (3, 1), (8, 1)])
def test_by_default_each_process_has_a_core(number: int, learners: int) -> None:
    given = {key: value for key, value in document(num_env_workers=number).items()}
    given.pop("learners", None)
    config = resolve_config(validate_config(given), duel_spec(), num_cores=4)
    assert config.learners == learners


def test_a_resume_may_have_another_number_and_the_setup_the_same_digest() -> None:
    run_file = new_run_file(
        validate_config(document()), duel_spec(), name="duel", launch_directory="."
    )
    config, changes = check_resume(
        run_file, config=None, overrides=["environment.num_env_workers=4"]
    )
    assert [(change.key, change.before, change.after) for change in changes] == [
        ("environment.num_env_workers", 0, 4)
    ]
    digests = {
        learner_setup(replace(run_file, config=one), root=Path()).digest
        for one in (run_file.config, config)
    }
    assert len(digests) == 1
    with pytest.raises(ResumeRefused, match=r"environment\.num_envs is 8 in this run"):
        check_resume(run_file, config=None, overrides=["environment.num_envs=16"])


GAME = replace(PACE, is_batched=True)


def cores(
    *,
    num_cores: int,
    size: int = 1,
    num_envs: int = 2048,
    is_batched: bool = True,
    population: Mapping[str, object] | None = None,
    **given: object,
) -> object:
    populations = DUEL["populations"]
    assert isinstance(populations, Mapping)
    (name,) = populations
    values = {**populations[name], "size": size, **(population or {})}
    config = validate_config(
        {**document(num_envs=num_envs), "populations": {name: values}, "learners": None, **given}
    )
    pace = replace(GAME, is_batched=is_batched)
    resolved = resolve_config(config, duel_spec(), num_cores=num_cores, pace=pace)
    # Resolving again changes nothing, on any machine.
    again = resolve_config(resolved, duel_spec(), num_cores=99, pace=pace)
    assert again.learner_cores == resolved.learner_cores
    return resolved.learners, resolved.learner_cores


def test_what_learners_leave_is_divided_among_them() -> None:
    assert cores(num_cores=2) == (1, 2)
    assert cores(num_cores=2, size=2) == (2, 1)
    assert cores(num_cores=4, size=2) == (2, 2)
    assert cores(num_cores=7, size=2) == (2, 3)
    assert cores(num_cores=4, size=3) == (3, 1)
    assert cores(num_cores=1) == (1, 1)


def test_more_processes_than_their_rows_are_worth_are_not_used() -> None:
    # 2048 environments, 32 calls and 4 minibatches give 16,384 rows, 512 for each of 32 threads.
    assert cores(num_cores=64) == (1, 32)
    assert cores(num_cores=64, num_envs=96) == (1, 1)


@pytest.mark.parametrize(
    "given",
    [
        {"is_batched": False},
        {"learners": 1},
        {"deterministic": True, "stop": {"agent_steps_per_policy": 10_000}},
        {"launcher": "inline"},
        {"device": "cuda"},
        {"population": {"algorithm": "tests.assets.dqn:Dqn", "hyperparameters": {}}},
    ],
    ids=str,
)
def test_where_it_is_not_known_to_gain_a_learner_has_one(given: dict[str, object]) -> None:
    assert cores(num_cores=8, **given) == (1, 1)  # type: ignore[arg-type]


def test_a_number_is_used_as_it_is_and_reaches_learners() -> None:
    assert cores(num_cores=2, is_batched=False, learner_cores=3, learners=1) == (1, 3)
    config = validate_config({**document(), "learner_cores": 3})
    run_file = new_run_file(config, duel_spec(), name="", launch_directory="", pace=PACE)
    assert learner_setup(run_file, root=Path()).cores == 3


def test_more_processes_than_environments_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"learner_cores must be at most environment\.num_envs, 8 "
    ):
        cores(num_cores=2, num_envs=8, learner_cores=9)
