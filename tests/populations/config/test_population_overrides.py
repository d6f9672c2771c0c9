"""What a population says for itself: its settings of PBT, and a schedule."""

from __future__ import annotations

import pytest

from arena.errors import ConfigError
from populations.config.resolve import resolve_config
from populations.config.role_settings import RolesConfig
from populations.config.run_config import RunConfig, validate_config
from populations.pbt.settings import PbtConfig
from tests.populations.controller.simulated import TAG, duel_spec, tag_spec


def tag(predator: dict[str, object] | None, **pbt: object) -> RunConfig:
    populations: dict[str, object] = {
        "predator": {"agents": ["adversary_*"], "pbt": predator},
        "prey": {"agents": ["agent_*"]},
    }
    document = {"environment": TAG["environment"], "populations": populations, "pbt": pbt}
    return resolve_config(validate_config(document), tag_spec(), num_cores=2)


def pbt_of(config: RunConfig, population: str) -> PbtConfig:
    found = config.populations[population].pbt
    assert found is not None
    return found


def test_a_population_changes_single_keys_and_has_the_others_of_the_section() -> None:
    config = tag({"fraction": 0.4, "explore": "resample"}, fraction=0.1, min_matches=7)
    predator, prey = pbt_of(config, "predator"), pbt_of(config, "prey")
    assert (predator.fraction, predator.explore, predator.min_matches) == (0.4, "resample", 7)
    assert prey == config.pbt
    assert (prey.fraction, prey.explore, prey.min_matches) == (0.1, "perturb", 7)


def test_a_key_that_is_set_to_the_default_counts_as_set() -> None:
    assert pbt_of(tag({"fraction": 0.25}, fraction=0.1), "predator").fraction == 0.25


def test_sections_within_the_section_are_merged_too() -> None:
    config = tag({"immigration": {"probability": 0.5}}, immigration={"from": ["runs/a"]})
    immigration = pbt_of(config, "predator").immigration
    assert (immigration.probability, immigration.players) == (0.5, ("runs/a",))
    assert pbt_of(config, "prey").immigration.probability == 0.0


def test_resolving_what_run_yaml_holds_changes_nothing() -> None:
    config = tag({"fraction": 0.4, "immigration": {"probability": 0.5}}, min_matches=7)
    document = config.model_dump(mode="json")
    assert document["populations"]["predator"]["pbt"]["immigration"] == {
        "probability": 0.5,
        "from": [],
    }
    again = resolve_config(validate_config(document), tag_spec(), num_cores=64)
    assert again == config


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"fractoin": 0.4}, "did you mean 'populations.predator.pbt.fraction'?"),
        ({"fraction": 0.9}, "populations.predator.pbt.fraction"),
        ({"exploit": "best"}, "populations.predator.pbt.exploit: must be one of"),
        ({"immigration": {"form": []}}, "did you mean 'populations.predator.pbt.immigration.from'"),
        ({"immigration": {"probability": 2}}, "populations.predator.pbt.immigration.probability"),
    ],
)
def test_a_fault_names_the_populations_key(own: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error_info:
        tag(own)
    assert message in str(error_info.value)


def scheduled(schedule: list[dict[str, object]], **population: object) -> RunConfig:
    own = {"size": 1, "schedule": schedule, **population}
    document = {"environment": {"id": "tests.duel:env"}, "populations": {"player": own}}
    return resolve_config(validate_config(document), duel_spec(), num_cores=2)


def test_a_schedule_takes_the_place_of_pbt_and_its_entries_are_filled_in() -> None:
    entries: list[dict[str, object]] = [
        {"agent_steps": 0, "hyperparameters": {"num_epochs": 2}},
        {"agent_steps": 5000, "hyperparameters": {"gamma": 0.95}},
    ]
    config = scheduled(entries, hyperparameters={"learning_rate": 1e-3})
    player = config.populations["player"]
    assert pbt_of(config, "player").exploit == "none"
    values = [entry.hyperparameters for entry in player.schedule]
    assert [(v["learning_rate"], v["num_epochs"], v["gamma"]) for v in values] == [
        (1e-3, 2, 0.99),
        (1e-3, 4, 0.95),
    ]
    assert resolve_config(config, duel_spec(), num_cores=2) == config


def test_an_entry_of_a_schedule_may_have_a_setting_that_pbt_changes() -> None:
    written = {"advantages": "vtrace", "gamma": 0.9}
    config = scheduled([{"agent_steps": 0, "hyperparameters": written}])
    (entry,) = config.populations["player"].schedule
    assert {name: entry.hyperparameters[name] for name in written} == written
    # Other settings cannot be scheduled.
    with pytest.raises(ConfigError, match=r"populations\.player\.schedule\.0\..*bptt_length"):
        scheduled([{"agent_steps": 0, "hyperparameters": {"bptt_length": 8}}])


@pytest.mark.parametrize(
    ("steps", "population", "message"),
    [
        ([0], {"size": 2}, "populations.player.size must be 1 where there is a schedule, got 2"),
        ([100], {}, "populations.player.schedule: agent_steps must rise from 0, got [100]"),
        ([0, 50, 50], {}, "agent_steps must rise from 0, got [0, 50, 50]"),
        ([0], {"pbt": {"exploit": "truncation"}},
         "populations.player.pbt.exploit must be none where there is a schedule"),
    ],
)  # fmt: skip
def test_a_schedule_that_cannot_be_followed_is_refused(
    steps: list[int], population: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as error_info:
        scheduled([{"agent_steps": count} for count in steps], **population)
    assert message in str(error_info.value)


def test_a_schedule_has_values_that_the_algorithm_takes() -> None:
    with pytest.raises(ConfigError, match=r"populations\.player\.schedule\.0\.hyperparameters"):
        scheduled([{"agent_steps": 0, "hyperparameters": {"gamma": 2.0}}])


def duel(roles: dict[str, int], *, size: int = 4, **section: object) -> RunConfig:
    document = {
        "environment": {"id": "tests.duel:env"},
        "populations": {"player": {"size": size, "roles": roles}},
        "roles": section,
    }
    return resolve_config(validate_config(document), duel_spec(), num_cores=2)


def test_counts_and_their_section_are_taken() -> None:
    config = duel({"main_exploiter": 1}, reset="nearest_even", win_rate=0.6)
    assert config.populations["player"].roles == {"main_exploiter": 1}
    assert (config.roles.reset, config.roles.win_rate) == ("nearest_even", 0.6)
    assert resolve_config(config, duel_spec(), num_cores=2) == config


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"boss": 1}, r"populations\.player\.roles: a role must be one of main, .* not 'boss'"),
        ({"main": 1, "main_exploiter": 1}, r"populations\.player\.roles: must add up to the size"),
        (
            {"main_exploiter": -1},
            r"populations\.player\.roles\.main_exploiter: must be at least 0, got -1",
        ),
    ],
)
def test_impossible_counts_name_their_key(roles: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        duel(roles)


@pytest.mark.parametrize(
    ("reset", "message"),
    [
        ("player/p007", "population player has 4 policies, got 'player/p007'"),
        ("prey/p000", r"must be a player of the population that has exploiters \(player\)"),
        ("player/p003", "must be a main agent or a ghost, got 'player/p003'"),
        ("", r"roles\.reset: must not be empty, got ''"),
    ],
)
def test_a_player_that_cannot_be_there_is_refused(reset: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        duel({"main_exploiter": 1}, reset=reset)


@pytest.mark.parametrize("reset", ["player/p000", "player/p003@000000120000", "runs/a:player/p003"])
def test_a_player_that_may_be_there_is_taken(reset: str) -> None:
    assert duel({"main_exploiter": 1}, reset=reset).roles.reset == reset


def test_which_players_are_of_other_runs() -> None:
    imported = {reset: RolesConfig(reset=reset).is_imported for reset in (
        "initial", "nearest_even", "player/p000", "player/p000@12", "runs/a", "runs/a:player/p003"
    )}  # fmt: skip
    assert [reset for reset, is_imported in imported.items() if is_imported] == [
        "runs/a",
        "runs/a:player/p003",
    ]


def test_where_all_agents_cooperate_there_is_nobody_to_exploit() -> None:
    environment = TAG["environment"]
    assert isinstance(environment, dict)
    document = {
        "environment": {**environment, "sides": {"all": ["*"]}},
        "populations": {
            "predator": {"agents": ["adversary_*"], "size": 3, "roles": {"main_exploiter": 1}},
            "prey": {"agents": ["agent_*"]},
        },
    }
    with pytest.raises(ConfigError, match=r"populations\.predator\.roles: must all be main where"):
        resolve_config(validate_config(document), tag_spec(), num_cores=2)
