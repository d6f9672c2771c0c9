"""Section ``pbt`` of the configuration: which rules select and explore, and when.

A key that only one rule reads is defined beside that rule; `PbtConfig` has all keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator, model_serializer

from arena.config import Model
from populations.fields import Count, Share, check_kind
from populations.pbt.exploit import FractionSettings
from populations.pbt.kinds import EXPLOITS, EXPLORES
from populations.rule_kinds import with_settings

EXPLOIT_KINDS = tuple(EXPLOITS)
EXPLORE_KINDS = tuple(EXPLORES)


class ImmigrationConfig(Model):
    """Policies from outside the run, one of which sometimes replaces a copy."""

    probability: Share = 0.0
    """Probability that a policy which would copy a donor is replaced by an immigrant instead."""

    players: tuple[str, ...] = Field((), alias="from", max_length=256)
    """Players of other runs whose weights are copied, drawn uniformly; none: random weights."""

    @model_serializer
    def _as_written(self) -> dict[str, object]:
        # ``from`` is a keyword of Python, so the attribute has another name.
        return {"probability": self.probability, "from": self.players}


class PbtSection(FractionSettings):
    """Population-based training: which policies copy others, and how hyperparameters change."""

    # The type is a string and no Literal, because users may name their own class here.
    exploit: str = "truncation"
    """``truncation``: the worst copy the best; ``binary_tournament``: a random other, if surely
    better; ``welch``: a random other, if a test on matches finds it better; ``predicted_win``: a
    random other against which too few wins are predicted; ``none``: nobody copies; or
    ``package.module:Class``."""

    explore: str = "perturb"
    """``perturb``: multiply, now and then draw anew; ``resample``: draw anew; ``tpe``, ``gp``,
    ``cma_es``, ``random``: Optuna's samplers; ``pb2``: a bandit on a Gaussian process that changes
    with time; ``none``: keep; or ``package.module:Class``."""

    initial: Literal["same", "sampled"] = "same"
    """First hyperparameters of each policy but policy 0, which has the start values: ``same``: one
    perturbation away from them; ``sampled``: drawn from the search space, evenly spread over it."""

    share: Literal["even", "halving"] = "even"
    """``even``: all policies train equally much, for ever; ``halving``: at its first decisions the
    worse half of a population leaves, until as many train as learners (at least two)."""

    ready_agent_steps: Count = 200_000
    """Minimum number of a policy's steps between two PBT decisions about it."""

    ready_growth: Share = 0.1
    """Steps between two decisions as a share of the policy's steps, where that is more: the older
    a policy, the longer a change takes to show."""

    warm_up_agent_steps: int = Field(400_000, ge=0, le=10**15)
    """Steps of a policy before the first PBT decision about it."""

    min_matches: int = Field(100, ge=1, le=10**9)
    """Evaluation matches that both policies must have before one copies the other."""

    mutate_others: bool = True
    """Whether policies in the middle of the ranking explore without copying."""

    reference: bool = True
    """Whether policy 0 is never mutated: it explores nothing, and copies a donor unchanged."""

    immigration: ImmigrationConfig = ImmigrationConfig()
    """Fresh policies, or players of other runs, that sometimes replace copies."""

    @field_validator("exploit")
    @classmethod
    def _known_exploit(cls, exploit: str) -> str:
        return check_kind(exploit, EXPLOIT_KINDS)

    @field_validator("explore")
    @classmethod
    def _known_explore(cls, explore: str) -> str:
        return check_kind(explore, EXPLORE_KINDS)


if TYPE_CHECKING:
    # Only a rule reads its own keys, so type checkers need not know them.
    PbtConfig = PbtSection
else:
    PbtConfig = with_settings(PbtSection, EXPLOITS, EXPLORES)
