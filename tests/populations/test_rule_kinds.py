"""A rule is one file and one line: what a new one would have, tried with rules of this file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest
from pydantic import Field

from arena.config import Model
from populations.candidates import FloatArray
from populations.core import Matchmaker, OpponentRequest
from populations.matchmaking import kinds, make, settings
from populations.matchmaking.drawing import RuleMatchmaker
from populations.matchmaking.make import ghost_memory, make_matchmaker
from populations.matchmaking.settings import MatchmakingSection
from populations.rule_kinds import (
    Choice,
    RuleKind,
    by_name,
    read_settings,
    unread_settings,
    with_settings,
)


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
NEW = by_name(*kinds.KINDS.values(), KIND)  # the one line


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
