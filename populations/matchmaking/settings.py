"""Section ``matchmaking`` of the configuration: which rule draws opponents, and how.

A key that only one rule reads is defined beside that rule; `MatchmakingConfig` has all keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from arena.config import Model
from arena.errors import BrokenRules
from populations.fields import IMPORT_PATH, Count, Share, canonical_player
from populations.matchmaking.kinds import KINDS
from populations.rule_kinds import with_settings


class LearningSideTurns(Model):
    """Populations that learn one at a time."""

    every_agent_steps: Count
    """Agent steps that each policy of a population trains before the next population's turn."""


class MatchmakingSection(Model):
    """Opponents against which a policy trains."""

    kind: str = "pfsp"
    """Rule that draws opponents; a user's own class: ``package.module:Class``."""

    latest_ratio: Share = 0.5
    """Share of opponents that are the trainee itself, or the latest policies of another
    population; default: 0.8 for ``quality``, and at most what ``living_ratio`` leaves."""

    living_ratio: Share = 0.0
    """Share of opponents that are the latest checkpoints of the other living policies of the
    trainee's own population, for every kind; with ``latest_ratio`` at most 1."""

    bots: dict[str, Annotated[float, Field(gt=0.0, le=1.0)]] = Field(default_factory=dict)
    """Shares of opponents that are bots, or players of other runs: an export, or
    ``RUN:player/p003``, whose weights are copied at launch."""

    opponents: int = Field(8, ge=1, le=1024)
    """Number of opponents in an assignment, among which its environments are divided equally."""

    teammates: Literal["same", "mixed"] = "same"
    """Policies that share a side in training. ``same``: copies of one; in cooperation of several
    populations the policies of equal index, which learn together. ``mixed``: the trainee plays one
    agent, and frozen players drawn from its own population the others."""

    rivals: Literal["frozen", "learning"] = "frozen"
    """Opponents of another population in training. ``frozen``: all of them. ``learning``: of two
    populations against each other a policy of each learns in the same assignment, and is the other
    one's latest."""

    learning_side_turns: LearningSideTurns | None = None
    """Turns in which one population learns and others are frozen; null: all learn at once."""

    options: dict[str, object] = Field(default_factory=dict)
    """Keyword arguments of a user's own class."""

    @field_validator("kind")
    @classmethod
    def _known_kind(cls, kind: str) -> str:
        if kind not in KINDS and not IMPORT_PATH.fullmatch(kind):
            raise ValueError(f"must be one of {', '.join(KINDS)} or package.module:Class")
        return kind

    @field_validator("bots")
    @classmethod
    def _known_bots(cls, bots: dict[str, float]) -> dict[str, float]:
        named = {canonical_player(bot): share for bot, share in bots.items()}
        if len(named) < len(bots):
            raise ValueError(f"each must be there once, got {', '.join(bots)}")
        # By rounding, 0.1 * 3 + 0.7 is slightly more than 1.
        if sum(bots.values()) > 1.0 + 1e-9:
            raise ValueError("their shares must sum to at most 1")
        return named

    @model_validator(mode="after")
    def _shares_of_the_same(self) -> Self:
        # By rounding, 0.7 + 0.1 * 3 is slightly more than 1. Only a value that the user wrote is
        # checked, because the default is reduced to the room that the living ratio leaves.
        is_said = "latest_ratio" in self.model_fields_set
        if is_said and self.latest_ratio + self.living_ratio > 1.0 + 1e-9:
            raise BrokenRules(
                "matchmaking.latest_ratio and matchmaking.living_ratio must sum to at most 1, "
                f"got {self.latest_ratio!r} and {self.living_ratio!r}"
            )
        return self

    @model_validator(mode="after")
    def _options_for_own(self) -> Self:
        if self.options and self.kind in KINDS:
            raise BrokenRules(
                f"matchmaking.options must be empty where kind is {self.kind!r} (they are for a "
                f"kind of your own, package.module:Class), got {self.options!r}"
            )
        return self


if TYPE_CHECKING:
    # Only a rule reads its own keys, so type checkers need not know them.
    MatchmakingConfig = MatchmakingSection
else:
    MatchmakingConfig = with_settings(MatchmakingSection, KINDS)
