"""Players that a run starts from, by the populations that they are named for."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import pytest

from arena.errors import ConfigError

origin: Any = importlib.import_module("populations.commands.launch.origin")
weights: Any = importlib.import_module("populations.commands.launch.imported_weights")


@pytest.mark.parametrize(
    ("init_from", "expected"),
    [
        ([], {}),
        (["runs/a"], {None: "runs/a"}),
        (["walker=runs/a:walker/p001", "wolf=runs/b"],
         {"walker": "runs/a:walker/p001", "wolf": "runs/b"}),
        (["runs/a", "wolf=runs/b"], {None: "runs/a", "wolf": "runs/b"}),
        # Equals signs of a path and of a bot's arguments name no population.
        (["runs/lr=3:wolf/p000"], {None: "runs/lr=3:wolf/p000"}),
        (["./lr=3"], {None: "./lr=3"}),
        (["bot:package:Class(depth=3)"], {None: "bot:package:Class(depth=3)"}),
        (["wolf=runs/lr=3"], {"wolf": "runs/lr=3"}),
    ],
)  # fmt: skip
def test_a_player_is_for_the_population_before_the_equals_sign_or_for_the_others(
    init_from: Sequence[str], expected: object
) -> None:
    assert weights.players_by_population(init_from, ("walker", "wolf")) == expected


@pytest.mark.parametrize(
    ("init_from", "message"),
    [
        (["runs/a", "runs/b"], "one player for all populations, got runs/a and runs/b"),
        (["wolf=a", "wolf=b"], "one player for population wolf, got a and b"),
        (["wulf=a"], "must be one of walker, wolf, got 'wulf'"),
    ],
)
def test_players_that_are_for_the_same_or_for_no_population_are_refused(
    init_from: Sequence[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        weights.players_by_population(init_from, ("walker", "wolf"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"with_hyperparameters": True}, "--with-hyperparameters needs --init-from"),
        ({"with_hyperparameters": True, "init_from": ("a",), "replay": "b:player/p000"},
         "exclude each other: .* got --schedule-of b:player/p000"),
    ],
)  # fmt: skip
def test_hyperparameters_without_a_player_or_beside_a_schedule_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        origin.Origin(**options).check()


def test_options_that_go_together_pass_and_are_said_as_they_were_given() -> None:
    both = origin.Origin(init_from=("wolf=a", "b"), with_hyperparameters=True)
    both.check()
    assert (both.said, both.is_empty) == ("wolf=a, b", False)
    assert (origin.Origin().said, origin.Origin().is_empty) == (None, True)
