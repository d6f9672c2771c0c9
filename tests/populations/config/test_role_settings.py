"""What a configuration may say about roles."""

from __future__ import annotations

import pytest

from arena.errors import ConfigError
from populations.config.resolve import resolve_config
from populations.config.role_settings import RolesConfig
from populations.config.run_config import RunConfig, validate_config
from tests.populations.controller.simulated import TAG, duel_spec, tag_spec


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
        ({"main_exploiter": 4}, r"populations\.player\.roles: at least 1 of 4 policies must be"),
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
