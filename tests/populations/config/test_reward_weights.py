"""Reward weights as hyperparameters: from YAML into the genes of policies."""

from __future__ import annotations

import pytest

from arena.errors import ConfigError
from arena.wire.messages import Train
from populations.choices import number_of
from populations.config.overrides import apply_overrides
from populations.config.resolve import resolve_config
from populations.config.run_config import RunConfig, load_config, validate_config
from populations.league.lineage import schedule_of
from tests.populations.controller.simulated import DUEL, duel_spec, make_world

ENVIRONMENT: dict[str, object] = {
    "id": "tests.duel:env",
    "num_envs": 8,
    "reward_weights": {"win": 1, "distance": 0.1},
}
LOW, HIGH = 0.01, 1.0
SPACE: dict[str, object] = {
    "learning_rate": {"low": 1e-5, "high": 3e-3, "log": True},
    "reward_weights.distance": {"low": LOW, "high": HIGH, "log": True},
}


def document(**player: object) -> dict[str, object]:
    return {**DUEL, "environment": ENVIRONMENT, "populations": {"player": {"size": 4, **player}}}


def resolved(source: object) -> RunConfig:
    return resolve_config(validate_config(source), duel_spec(), launch_directory=".", num_cores=2)


def test_each_weight_is_a_hyperparameter_that_starts_as_configured() -> None:
    config = resolved(document(search_space=SPACE))
    player = config.populations["player"]
    own = {k: v for k, v in player.hyperparameters.items() if k.startswith("reward_weights")}
    assert own == {"reward_weights.win": 1.0, "reward_weights.distance": 0.1}
    # A weight is no integer, however it is written.
    assert {type(value) for value in own.values()} == {float}
    assert player.hyperparameters["gamma"] == 0.99
    assert player.search_space == SPACE
    again = resolve_config(config, duel_spec(), launch_directory=".", num_cores=2)
    assert again == config
    assert resolved(config.model_dump(mode="json")) == config


def test_without_weights_hyperparameters_are_the_algorithms() -> None:
    hyperparameters = resolved(DUEL).populations["player"].hyperparameters
    assert not [name for name in hyperparameters if "reward" in name]


def test_a_population_may_start_from_weights_of_its_own() -> None:
    nested = {"reward_weights": {"distance": 0.5}}
    for written in ({"reward_weights.distance": 0.5}, nested):
        player = resolved(document(hyperparameters=written)).populations["player"]
        assert player.hyperparameters["reward_weights.distance"] == 0.5
        assert player.hyperparameters["reward_weights.win"] == 1.0


def test_weights_and_their_bounds_can_be_overridden_by_dotted_paths() -> None:
    changed = apply_overrides(
        document(search_space=SPACE),
        [
            "environment.reward_weights.win=2.5",
            "populations.player.hyperparameters.reward_weights.distance=0.3",
            "populations.player.search_space.reward_weights.distance={low: 0.2, high: 0.4}",
        ],
    )
    player = resolved(changed).populations["player"]
    assert player.hyperparameters["reward_weights.win"] == 2.5
    assert player.hyperparameters["reward_weights.distance"] == 0.3
    assert player.search_space["reward_weights.distance"] == {"low": 0.2, "high": 0.4}


@pytest.mark.parametrize(
    ("player", "message"),
    [
        (
            {"search_space": {"reward_weights.distanc": {"low": 0.1, "high": 1.0}}},
            r"populations\.player\.search_space\.reward_weights\.distanc: environment\."
            r"reward_weights has no component 'distanc'; did you mean 'distance'\?; "
            r"it has: win, distance$",
        ),
        (
            {"hyperparameters": {"reward_weights.wins": 1.0}},
            r"populations\.player\.hyperparameters\.reward_weights\.wins: .*'win'\?",
        ),
        (
            {
                "size": 1,
                "schedule": [{"agent_steps": 0, "hyperparameters": {"reward_weights.x": 1.0}}],
            },
            r"populations\.player\.schedule\.0\.reward_weights\.x: ",
        ),
        (
            {"hyperparameters": {"reward_weights.win": 1e7}},
            r"hyperparameters\.reward_weights\.win: must be at most 1000000, got",
        ),
        (
            {"search_space": {"reward_weights.win": {"low": 0.1, "high": 1e7}}},
            r"search_space\.reward_weights\.win allows 10000000\.0, but",
        ),
    ],
)
def test_errors_name_the_weight_and_the_rule(player: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolved(document(**player))


def test_weights_need_components_that_are_configured() -> None:
    player = {"search_space": {"reward_weights.win": {"low": 0.1, "high": 1.0}}}
    with pytest.raises(ConfigError, match=r"has no component 'win'; it is empty$"):
        resolved({**DUEL, "populations": {"player": player}})
    with pytest.raises(ConfigError, match=r"environment\.reward_weights\.win: .*got 'much'"):
        validate_config({"environment": {"id": "x", "reward_weights": {"win": "much"}}})
    with pytest.raises(ConfigError, match=r"environment\.backend must be auto or pettingzoo"):
        load_config("tictactoe", ["environment.backend=batched", "environment.reward_weights.x=1"])


def test_pbt_explores_weights_within_bounds_and_copies_them_with_the_weights() -> None:
    pbt: dict[str, object] = {**DUEL["pbt"], "reference": False}  # type: ignore[dict-item]
    world = make_world(
        {**document(search_space=SPACE), "pbt": pbt, "learners": 1},
        joined=1,
        learning=lambda trainee: (
            500 * number_of(trainee.hyperparameters["reward_weights.distance"])
        ),
    )
    world.run()
    tables = world.state.tables
    rows = sorted(tables.generations.values(), key=lambda row: (row.policy, row.generation))
    values = [row.hyperparameters["reward_weights.distance"] for row in rows]
    assert len(set(values)) > 6
    assert all(LOW <= number_of(value) <= HIGH for value in values)
    # What is not in the search space stays.
    assert {row.hyperparameters["reward_weights.win"] for row in rows} == {1.0}
    exploited = world.events("exploited")
    assert exploited
    for event in exploited:
        explored = event.data["new"]
        assert isinstance(explored, dict)
        weight = explored["reward_weights.distance"]
        assert isinstance(weight, float)
        assert LOW <= weight <= HIGH
        donors = event.data["donor_hyperparameters"]
        assert isinstance(donors, dict)
        assert LOW <= donors["reward_weights.distance"] <= HIGH
    # What learners are told is what the policies have.
    told = [
        trainee.hyperparameters["reward_weights.distance"]
        for row in tables.assignments.values()
        if isinstance(row.message, Train)
        for trainee in row.message.trainees
    ]
    assert set(told) <= set(values)
    policy = next(iter(tables.policies.values()))
    assert "reward_weights.distance" in schedule_of(tables, policy.policy)[0].hyperparameters
