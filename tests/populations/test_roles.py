"""Snapshots and resets by role, by hand and by counting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from arena.types import PlayerId
from populations.config.role_settings import RolesConfig
from populations.roles import (
    ROLES,
    deal_roles,
    has_exploiters,
    is_reset,
    nearest_even,
    next_mark,
    reset_probability,
)

RULE = partial(RolesConfig().why_ghost, phase=1000, constants="pseudocode")
PAPER = partial(RolesConfig().why_ghost, phase=1000, constants="paper")
NOBODY = np.zeros(0)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("rule", [RULE, PAPER])
def test_nobody_leaves_a_ghost_within_a_phase(rule: Callable[..., str | None], role: str) -> None:
    assert rule(role, agent_steps=999, win_rates=np.array([0.99])) is None


@pytest.mark.parametrize("role", ROLES)
def test_the_timeout_is_two_phases(role: str) -> None:
    losing = np.array([0.1, 0.9])
    if role != "main":
        assert PAPER(role, agent_steps=1999, win_rates=losing) is None
    assert RULE(role, agent_steps=1999, win_rates=losing) is None
    assert RULE(role, agent_steps=1999, win_rates=NOBODY) is None
    assert RULE(role, agent_steps=2000, win_rates=losing) is not None
    assert RULE(role, agent_steps=2000, win_rates=NOBODY) is not None


@pytest.mark.parametrize("role", ROLES)
def test_who_beats_everybody_leaves_one_at_once(role: str) -> None:
    assert RULE(role, agent_steps=1000, win_rates=np.array([0.71, 0.9])) is not None
    assert RULE(role, agent_steps=1000, win_rates=np.array([0.70, 0.9])) is None


def test_by_the_paper_a_main_agent_leaves_one_each_phase() -> None:
    assert PAPER("main", agent_steps=1000, win_rates=np.array([0.1])) is not None
    assert RULE("main", agent_steps=1000, win_rates=np.array([0.1])) is None


@pytest.mark.parametrize(
    ("since", "mark"), [(0, 1000), (1, 999), (999, 1), (1000, 1000), (1700, 300)]
)
def test_marks_are_whole_phases(since: int, mark: int) -> None:
    assert next_mark(since, phase=1000) == mark


def test_resets_are_as_frequent_as_said() -> None:
    rng = np.random.default_rng(0)
    assert [reset_probability(role) for role in ROLES] == [0.0, 1.0, 0.25]
    assert [reset_probability(role, league_exploiter=0.6) for role in ROLES] == [0.0, 1.0, 0.6]
    for expected in (0.0, 0.25, 0.6, 1.0):
        resets = sum(is_reset(expected, rng=rng) for _ in range(4000))
        deviation = np.sqrt(4000 * expected * (1.0 - expected))
        assert abs(resets - 4000 * expected) <= 4.0 * deviation


def test_the_exploiter_nearest_to_even_is_gone_on_from() -> None:
    win_rates = {PlayerId("a"): 0.21, PlayerId("b"): 0.45, PlayerId("c"): 0.6, PlayerId("d"): 0.1}
    assert nearest_even(win_rates) == "b"
    assert nearest_even({PlayerId("c"): 0.6, PlayerId("d"): 0.1}) is None
    assert nearest_even({}) is None


def test_main_agents_come_first_and_are_the_rest() -> None:
    roles = deal_roles({"league_exploiter": 1, "main_exploiter": 2}, size=5)
    assert roles == ["main", "main", "main_exploiter", "main_exploiter", "league_exploiter"]
    assert deal_roles({}, size=2) == ["main", "main"]


def test_a_population_without_counts_of_exploiters_has_main_agents_only() -> None:
    assert has_exploiters({"main": 2, "league_exploiter": 1})
    assert not has_exploiters({})
    assert not has_exploiters({"main": 4, "main_exploiter": 0})


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"boss": 1}, "a role must be one of"),
        ({"main_exploiter": 4}, "at least 1 of 4 policies must be main, 0 would be"),
        ({"main": 2, "main_exploiter": 1}, "must add up to the size 4, got 3"),
    ],
)
def test_impossible_roles_are_refused(counts: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        deal_roles(counts, size=4)
