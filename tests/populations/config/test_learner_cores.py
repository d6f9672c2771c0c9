"""`learner_cores`: how many cores a learner gets where nobody says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from arena.errors import ConfigError
from populations.config.resolve import resolve_config
from populations.config.run_config import validate_config
from populations.config.run_file import learner_setup, new_run_file
from tests.populations.config.test_env_workers import PACE, document
from tests.populations.controller.simulated import DUEL, duel_spec

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
    # Resolving twice changes nothing, on whatever machine.
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
    # 2048 environments, 32 calls, 4 minibatches: 16,384 rows, 512 for each of 32.
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
