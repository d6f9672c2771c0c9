"""Snapshots and resets by role, by hand and by counting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import pytest
from pydantic import Field

from arena.config import Model
from arena.types import PlayerId
from populations.candidates import FloatArray
from populations.config.role_settings import RolesConfig
from populations.core import Matchmaker, OpponentRequest
from populations.matchmaking import kinds, make, settings
from populations.matchmaking.drawing import RuleMatchmaker
from populations.matchmaking.make import ghost_memory, make_matchmaker
from populations.matchmaking.settings import MatchmakingSection
from populations.roles import (
    ROLES,
    deal_roles,
    has_exploiters,
    is_reset,
    nearest_even,
    next_mark,
    reset_probability,
)
from populations.rule_kinds import (
    Choice,
    RuleKind,
    by_name,
    read_settings,
    unread_settings,
    with_settings,
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


class HardestSettings(Model):
    """Settings of the new rule."""

    patience: int = Field(3, ge=1)
    """Assignments for which a ghost stays the hardest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardestRule:
    """A stateful rule: a ghost that was beaten ``patience`` times is drawn no more."""

    patience: int

    def weights(self, request: OpponentRequest, *, rng: np.random.Generator) -> FloatArray:
        del rng
        return np.asarray(request.ghosts.qualities < self.patience, dtype=np.float64)

    def number_of_new(self, numbers: FloatArray) -> float:
        del numbers
        return 0.0

    def number_after(self, numbers: FloatArray, index: int, *, num_wins: int) -> float:
        return float(numbers[index]) + num_wins


KIND = RuleKind(
    name="hardest",
    settings=HardestSettings,
    make=lambda found: HardestRule(patience=found.patience),
    usual={"latest_ratio": 0.1},
)
NEW = by_name(*kinds.KINDS.values(), KIND)  # this is the only line to change


def test_a_new_stateful_rule_is_one_kind_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "KINDS", NEW)
    monkeypatch.setattr(settings, "KINDS", NEW)
    section = with_settings(MatchmakingSection, NEW).model_validate(
        {"kind": "hardest", "patience": 5, "latest_ratio": 0.25}
    )
    matchmaker = make_matchmaker(section, window=2, launch_directory=".")
    assert matchmaker == RuleMatchmaker(rule=HardestRule(patience=5), latest_ratio=0.25)
    memory = ghost_memory(matchmaker)
    assert memory is not None
    assert memory.number_after(np.array([0.0, 1.0]), 1, num_wins=2) == 3.0
    living = section.model_copy(update={"living_ratio": 0.5})
    assert ghost_memory(make_matchmaker(living, window=2, launch_directory=".")) is not None


def test_its_settings_are_keys_of_the_section_with_their_rules() -> None:
    section = with_settings(MatchmakingSection, NEW)
    assert section.__name__ == "MatchmakingConfig"
    assert section.model_validate({}).model_dump()["patience"] == 3
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        section.model_validate({"patience": 0})
    with pytest.raises(ValueError, match="patience"):
        MatchmakingSection.model_validate({"patience": 2})


def test_a_rule_without_state_keeps_none() -> None:
    for kind in kinds.KINDS:
        section = settings.MatchmakingConfig.model_validate({"kind": kind})
        made = make_matchmaker(section, window=2, launch_directory=".")
        assert (ghost_memory(made) is not None) == (kind == "quality")


class Box(Model):
    """A section without keys of its own."""


class Narrow(Model):
    """Settings that another rule has, too."""

    width: float = 1.0


class Wide(Narrow):
    """Settings with one more."""

    height: float = 2.0


def test_shared_settings_are_there_once_and_either_rule_reads_them() -> None:
    some = by_name(
        RuleKind(name="narrow", settings=Narrow, make=lambda found: found.width),
        RuleKind(name="wide", settings=Wide, make=lambda found: found.width * found.height),
        RuleKind(name="plain", settings=Model, make=lambda _: 0.0),
    )
    section = with_settings(Box, some).model_validate({"width": 3.0})
    assert [some[name].from_sections(section) for name in some] == [3.0, 6.0, 0.0]
    assert read_settings(Narrow, section) == Narrow(width=3.0)

    def unread(name: str) -> list[str]:
        return unread_settings(section, prefix="box", choices=[Choice("box.kind", some, name)])

    assert unread("narrow") == unread("wide") == unread("their.own:Rule") == []
    assert unread("plain") == [
        "box.width is read only where box.kind is narrow or wide, got 3.0 where box.kind is plain; "
        "leave it out, or at its default 1.0"
    ]


def test_a_rule_may_read_another_section() -> None:
    kind = RuleKind(name="x", settings=Narrow, make=lambda found: found.width, section="other")
    assert kind.from_sections(Model(), other=Wide(width=7.0)) == 7.0
    assert "width" not in with_settings(Box, by_name(kind)).model_fields


def test_a_matchmaker_needs_no_ghosts_memory() -> None:
    class Plain:
        def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> None:
            del request, rng

    assert ghost_memory(cast(Matchmaker, Plain())) is None
