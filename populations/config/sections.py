"""The sections of the configuration, from a population's to when a run stops."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_serializer

from arena.config import Model, NetworkConfig
from arena.types import RANDOM_BOT
from populations.config.reward_weights import with_dotted_weights
from populations.fields import IMPORT_PATH, Count, Seconds, Share, canonical

SearchRange = dict[str, object]
"""``{low, high, log, complement}`` or ``{choices}``; `search_space` checks it."""

DEFAULT_SEARCH_SPACE: dict[str, SearchRange] = {
    "learning_rate": {"low": 1e-5, "high": 3e-3, "log": True},
    "gamma": {"low": 0.9, "high": 0.9999, "complement": True},
}


def _without_nulls(values: object) -> object:
    values = with_dotted_weights(values)
    if not isinstance(values, dict):
        return values
    return {name: value for name, value in values.items() if value is not None}


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


class ImmigrationConfig(Model):
    """Policies from outside: now and then one takes the place of a copy."""

    probability: Share = 0.0
    """How often a policy that would copy a donor is replaced by an immigrant instead."""

    players: tuple[str, ...] = Field((), alias="from", max_length=256)
    """Players of other runs whose weights come in, drawn uniformly; none: fresh random weights."""

    @model_serializer
    def _as_written(self) -> dict[str, object]:
        # ``from`` is a word of Python's, so the attribute has another name.
        return {"probability": self.probability, "from": self.players}


EXPLOIT_KINDS = ("truncation", "binary_tournament", "welch", "predicted_win", "none")
SINK_KINDS = ("tensorboard", "jsonl")
EXPLORE_KINDS = ("perturb", "resample", "tpe", "gp", "cma_es", "random", "pb2", "none")


class PbtConfig(Model):
    """Population-based training: who copies whom, and what changes then."""

    exploit: str = "truncation"
    """``truncation``: the worst copy the best; ``binary_tournament``: a random other, if surely
    better; ``welch``: a random other, if a test on matches finds it better; ``predicted_win``: a
    random other against which too few wins are predicted; ``none``: nobody copies; or
    ``package.module:Class``."""

    explore: str = "perturb"
    """``perturb``: multiply, now and then draw anew; ``resample``: draw anew; ``tpe``, ``gp``,
    ``cma_es``, ``random``: Optuna's samplers; ``pb2``: a bandit on a Gaussian process that changes
    with time; ``none``: keep; or ``package.module:Class``."""

    fraction: float = Field(0.25, gt=0.0, le=0.5)
    """The worst ``fraction`` of a population copies from the best ``fraction``."""

    ready_agent_steps: Count = 200_000
    """Steps of a policy between two PBT decisions about it."""

    warm_up_agent_steps: int = Field(400_000, ge=0, le=10**15)
    """Steps of a policy before the first PBT decision about it."""

    min_matches: int = Field(100, ge=1, le=10**9)
    """Evaluation matches that both policies must have before one copies the other."""

    min_rating_gap: float = Field(30.0, ge=0.0, le=10_000.0)
    """Elo by which the donor must be ahead (``truncation``, ``binary_tournament``)."""

    confidence: float = Field(0.9, ge=0.0, lt=1.0)
    """Probability, by the ratings, that the donor is better; 0: however unsure that is."""

    significance: float = Field(0.05, gt=0.0, lt=1.0)
    """Two-sided p value below which ``welch`` copies."""

    win_rate_threshold: float = Field(0.3, gt=0.0, le=0.5)
    """Predicted win rate against the other below which ``predicted_win`` copies it."""

    mutate_others: bool = True
    """Whether policies in the middle of the ranking explore without copying."""

    reference: bool = True
    """Whether policy 0 is never mutated: it explores nothing, and copies a donor unchanged."""

    perturb_factors: tuple[float, ...] = Field((0.8, 1.2), min_length=1, max_length=16)
    """A hyperparameter is multiplied by one of these."""

    resample_probability: Share = 0.25
    """How often a hyperparameter is drawn anew from its range instead."""

    mutation_probability: Share = 1.0
    """How often ``perturb`` changes a hyperparameter at all."""

    reset_probability: Share = 0.0
    """How often ``perturb`` puts a hyperparameter back to its start value."""

    immigration: ImmigrationConfig = ImmigrationConfig()
    """Fresh or foreign policies now and then, instead of copies."""

    @field_validator("exploit")
    @classmethod
    def _known_exploit(cls, exploit: str) -> str:
        return _kind_or_import_path(exploit, EXPLOIT_KINDS)

    @field_validator("explore")
    @classmethod
    def _known_explore(cls, explore: str) -> str:
        return _kind_or_import_path(explore, EXPLORE_KINDS)

    @field_validator("perturb_factors")
    @classmethod
    def _positive(cls, factors: tuple[float, ...]) -> tuple[float, ...]:
        if any(factor <= 0.0 for factor in factors):
            raise ValueError("every factor must be greater than 0")
        return factors


def _kind_or_import_path(kind: str, kinds: tuple[str, ...]) -> str:
    if kind not in kinds and not IMPORT_PATH.fullmatch(kind):
        raise ValueError(f"must be one of {', '.join(kinds)}, or package.module:Class")
    return kind


class ScheduleEntry(Model):
    """From when on which hyperparameters are in use."""

    agent_steps: int = Field(ge=0, le=10**15)
    """The policy's count at which they begin."""

    hyperparameters: Annotated[dict[str, int | float], BeforeValidator(with_dotted_weights)] = (
        Field(default_factory=dict)
    )
    """Those that differ from the population's start values, or all."""


class PopulationConfig(Model):
    """The policies that compete for the same agents."""

    agents: tuple[str, ...] | None = None
    """Agents its policies play, globs allowed; default: those with the same spaces."""

    size: int = Field(8, ge=1, le=10_000)
    """How many policies it has."""

    roles: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    """How many are ``main_exploiter`` and ``league_exploiter``; ``main`` is the rest."""

    network: NetworkConfig = NetworkConfig()
    """The architecture of every policy."""

    algorithm: str = "ppo"
    """How its policies learn: ``ppo``, or ``package.module:Name``."""

    algorithm_settings: dict[str, object] = Field(default_factory=dict)
    """Settings of the algorithm, the same for all policies and for good; what is left out has the
    algorithm's default."""

    hyperparameters: Annotated[dict[str, int | float], BeforeValidator(_without_nulls)] = Field(
        default_factory=dict
    )
    """Start values; what is left out, or null, has the algorithm's default, and
    ``reward_weights.<component>`` the weight in ``environment.reward_weights``."""

    search_space: Annotated[dict[str, SearchRange], BeforeValidator(with_dotted_weights)] = (
        DEFAULT_SEARCH_SPACE
    )
    """What PBT may change, and within which bounds; ``reward_weights.<component>`` too."""

    pbt: PbtConfig | None = None
    """Keys of the section ``pbt`` that are other for this population; null: none."""

    schedule: tuple[ScheduleEntry, ...] = ()
    """Hyperparameters by agent steps, instead of PBT; ``--replay`` makes it. Empty: none."""

    @field_validator("algorithm")
    @classmethod
    def _known_algorithm(cls, algorithm: str) -> str:
        if algorithm != "ppo" and not IMPORT_PATH.fullmatch(algorithm):
            raise ValueError("must be ppo or package.module:Name")
        return algorithm


class EvaluationConfig(Model):
    """Matches between frozen players, which alone move ratings."""

    share: float = Field(0.1, ge=0.0, le=0.9)
    """Share of learner seconds; of assignments in a deterministic run."""

    bots: tuple[str, ...] = ("bot:random",)
    """Scripted players that are rated too; ``bot:random`` is the zero of the scale."""

    @field_validator("bots")
    @classmethod
    def _known_bots(cls, bots: tuple[str, ...]) -> tuple[str, ...]:
        named = tuple(dict.fromkeys(canonical(bot) for bot in bots))
        if RANDOM_BOT not in named:
            raise ValueError("bot:random must be among them: it is the zero of the rating scale")
        return named


class AssignmentConfig(Model):
    """How much a learner does before it hears from the controller again."""

    target_s: Seconds = 3.0
    """Seconds that a training assignment should take, at the measured speed."""

    agent_steps: Count | None = None
    """A fixed budget for each policy instead; a deterministic run has one in any case."""

    episodes: int | None = Field(None, ge=1, le=10**9)
    """Deterministic runs only: whole episodes that each environment plays; null: as many as come
    nearest to ``agent_steps``, by the length of an episode that is measured at launch."""


class CheckpointsConfig(Model):
    """Which checkpoints stay on disk besides those that something refers to."""

    keep: int | None = Field(3, ge=1, le=10**9)
    """How many of the newest, per policy; null keeps all."""

    milestones_every_agent_steps: Count | None = None
    """Keep one for ever each so many agent steps."""


class MetricsConfig(Model):
    """Where figures about learning go."""

    sinks: tuple[str, ...] = ("tensorboard", "jsonl")
    """``tensorboard`` (event files), ``jsonl`` (lines of JSON), ``package.module:Class``."""

    @field_validator("sinks")
    @classmethod
    def _known_sinks(cls, sinks: tuple[str, ...]) -> tuple[str, ...]:
        for sink in sinks:
            _kind_or_import_path(sink, SINK_KINDS)
        if len(set(sinks)) < len(sinks):
            raise ValueError(f"each sink must be named once, got {', '.join(sinks)}")
        return sinks


class StopConfig(Model):
    """When a run is finished: whichever comes first; null is no limit."""

    agent_steps_per_policy: Count | None = 5_000_000
    """Every active policy has done so many agent steps."""

    agent_steps: Count | None = None
    """The policies have done so many together."""

    duration_s: Seconds | None = None
    """The run has lasted so long, stops and resumes not counted."""

    rating: float | None = None
    """In every population a policy's rating has reached this for certain: by a lower bound that
    holds however often and at however many policies one looks."""


AlertKind = Literal[
    "no_episode_ended",
    "reward_constant",
    "observations_constant",
    "entropy_collapsed",
    "loss_high",
    "kl_high",
    "void_episodes",
    "learner_failing",
    "learners_idle",
    "explore_fell_back",
    "exploit_fell_back",
    "pbt_undecided",
    "no_steps",
    "sink_failed",
]
"""What `populations.controller.monitoring.alerts` raises."""


class AlertsConfig(Model):
    """What somebody should look at; alerts are raised in any case."""

    fail: tuple[AlertKind, ...] = ()
    """Kinds of alerts that end the run, with exit code 3."""
