"""The sections of the configuration, from a population's to when a run stops."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from arena.config import Model, NetworkConfig

IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
"""``package.module:Name``."""

Count = Annotated[int, Field(ge=1, le=10**15)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0.0, le=1e9)]

SearchRange = dict[str, object]
"""``{low, high, log, complement}`` or ``{choices}``; `populations.pbt.search_space` checks it."""

DEFAULT_SEARCH_SPACE: dict[str, SearchRange] = {
    "learning_rate": {"low": 1e-5, "high": 3e-3, "log": True},
    "gamma": {"low": 0.9, "high": 0.9999, "complement": True},
}


def _without_nulls(values: object) -> object:
    if not isinstance(values, dict):
        return values
    return {name: value for name, value in values.items() if value is not None}


class PopulationConfig(Model):
    """The policies that compete for the same agents."""

    agents: tuple[str, ...] | None = None
    """Agents its policies play, globs allowed; default: those with the same spaces."""

    size: int = Field(8, ge=1, le=10_000)
    """How many policies it has."""

    network: NetworkConfig = NetworkConfig()
    """The architecture of every policy."""

    algorithm: str = "ppo"
    """How its policies learn: ``ppo``, or ``package.module:Name``."""

    hyperparameters: Annotated[dict[str, int | float], BeforeValidator(_without_nulls)] = Field(
        default_factory=dict
    )
    """Start values; what is left out, or null, has the algorithm's default."""

    search_space: dict[str, SearchRange] = DEFAULT_SEARCH_SPACE
    """What PBT may change, and within which bounds."""

    @field_validator("algorithm")
    @classmethod
    def _known_algorithm(cls, algorithm: str) -> str:
        if algorithm != "ppo" and not IMPORT_PATH.fullmatch(algorithm):
            raise ValueError("must be ppo or package.module:Name")
        return algorithm


class MatchmakingConfig(Model):
    """Against whom a policy trains."""

    kind: Literal["latest", "uniform", "window", "pfsp"] = "pfsp"
    """How ghosts are drawn: none, all alike, the newest alike, or by how hard they are."""

    weighting: Literal["variance", "linear", "linear_capped", "squared"] = "squared"
    """How strongly ``pfsp`` prefers hard opponents."""

    latest_ratio: Share = 0.5
    """Share of opponents that are the latest policies (itself included), not ghosts."""

    opponents: int = Field(8, ge=1, le=1024)
    """Opponents in one assignment; its environments are split among them equally."""

    teammates: Literal["same"] = "same"
    """Who shares a side: copies of the same policy."""


class PayoffsConfig(Model):
    """The table of results that matchmaking reads."""

    half_life_matches: float = Field(5000.0, gt=0.0, le=1e12)
    """After so many matches of a pair, an older result counts half."""


class GhostsConfig(Model):
    """Frozen copies of policies, kept as opponents."""

    every_agent_steps: Count = 100_000
    """A policy leaves a ghost each time it has done so many agent steps."""

    window: int = Field(32, ge=1, le=100_000)
    """How many of the newest ghosts of a population the matchmaker ``window`` draws from."""


class PbtConfig(Model):
    """Population-based training: who copies whom, and what changes then."""

    exploit: Literal["truncation", "none"] = "truncation"
    """``truncation``: the worst copy the best; ``none``: nobody copies."""

    explore: Literal["perturb", "resample", "none"] = "perturb"
    """``perturb``: multiply, now and then draw anew; ``resample``: draw anew; ``none``: keep."""

    fraction: float = Field(0.25, gt=0.0, le=0.5)
    """The worst ``fraction`` of a population copies from the best ``fraction``."""

    ready_agent_steps: Count = 200_000
    """Steps of a policy between two PBT decisions about it."""

    warm_up_agent_steps: int = Field(400_000, ge=0, le=10**15)
    """Steps of a policy before the first PBT decision about it."""

    min_matches: int = Field(100, ge=1, le=10**9)
    """Evaluation matches that both policies must have before one copies the other."""

    min_rating_gap: float = Field(30.0, ge=0.0, le=10_000.0)
    """Elo by which the donor must be ahead."""

    mutate_others: bool = True
    """Whether policies in the middle of the ranking explore without copying."""

    reference: bool = True
    """Whether policy 0 is never mutated: it explores nothing, and copies a donor unchanged."""

    perturb_factors: tuple[float, ...] = Field((0.8, 1.2), min_length=1, max_length=16)
    """A hyperparameter is multiplied by one of these."""

    resample_probability: Share = 0.25
    """How often a hyperparameter is drawn anew from its range instead."""

    @field_validator("perturb_factors")
    @classmethod
    def _positive(cls, factors: tuple[float, ...]) -> tuple[float, ...]:
        if any(factor <= 0.0 for factor in factors):
            raise ValueError("every factor must be greater than 0")
        return factors


class EvaluationConfig(Model):
    """Matches between frozen players, which alone move ratings."""

    share: float = Field(0.1, ge=0.0, le=0.9)
    """Share of learner seconds; of assignments in a deterministic run."""

    bots: tuple[str, ...] = ("bot:random",)
    """Scripted players that are rated too; ``bot:random`` is the zero of the scale."""

    @field_validator("bots")
    @classmethod
    def _known_bots(cls, bots: tuple[str, ...]) -> tuple[str, ...]:
        for bot in bots:
            name = bot.removeprefix("bot:")
            if name == bot or (name != "random" and not IMPORT_PATH.fullmatch(name)):
                raise ValueError(
                    f"each must be bot:random or bot:package.module:Class, not {bot!r}"
                )
        if "bot:random" not in bots:
            raise ValueError("bot:random must be among them: it is the zero of the rating scale")
        return bots


class AssignmentConfig(Model):
    """How much a learner does before it hears from the controller again."""

    target_s: Seconds = 3.0
    """Seconds that a training assignment should take, at the measured speed."""

    agent_steps: Count | None = None
    """A fixed budget instead; a deterministic run has one in any case."""


class CheckpointsConfig(Model):
    """Which checkpoints stay on disk besides those that something refers to."""

    keep: int | None = Field(3, ge=1, le=10**9)
    """How many of the newest, per policy; null keeps all."""

    milestones_every_agent_steps: Count | None = None
    """Keep one for ever each so many agent steps."""


class MetricsConfig(Model):
    """Where figures about learning go."""

    sinks: tuple[Literal["tensorboard", "jsonl"], ...] = ("tensorboard", "jsonl")
    """Event files for TensorBoard, lines of JSON, or both."""


class StopConfig(Model):
    """When a run is finished: whichever comes first; null is no limit."""

    agent_steps_per_policy: Count | None = 5_000_000
    """Every active policy has done so many agent steps."""

    agent_steps: Count | None = None
    """The policies have done so many together."""

    duration_s: Seconds | None = None
    """The run has lasted so long, stops and resumes not counted."""

    rating: float | None = None
    """A champion's rating (its lower bound) has reached this."""
