"""The sections of the configuration, from those of a population to ``stop``.

Tests: `tests/populations/config/test_run_config.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_serializer, model_validator

from arena.config import NO_OPENINGS, Model, NetworkConfig, NormalizerWarmUp, RandomOpenings
from arena.learning.hyperparameters import REWARD_WEIGHT
from arena.metrics.tracker import TRACKERS
from arena.types import RANDOM_BOT, PlayerId, Value
from populations.fields import IMPORT_PATH, Count, Seconds, canonical_player, check_kind
from populations.hyperparameter_schedules import ScheduledValues, start_values
from populations.matchmaking.external_players import external_player_id
from populations.matchmaking.window import WindowRule
from populations.pbt.settings import PbtConfig
from populations.thinning.make import THINNINGS
from populations.thinning.spread import Spread

SECTION = REWARD_WEIGHT.removesuffix(".")


def with_dotted_weights(values: object) -> object:
    """Return ``reward_weights: {win: ...}`` as ``reward_weights.win: ...``, other keys unchanged.

    Both forms may be written; if a weight is in both, the later one counts.
    """
    # ``KEY=VALUE`` on the command line makes the nested form, as its path is split at each dot.
    if not isinstance(values, Mapping) or not isinstance(values.get(SECTION), Mapping):
        return values
    dotted: dict[object, object] = {}
    for name, value in values.items():
        if name == SECTION:
            dotted.update({f"{REWARD_WEIGHT}{inner}": weight for inner, weight in value.items()})
        else:
            dotted[name] = value
    return dotted


def _range(entry: object) -> object:
    if not isinstance(entry, Mapping):
        bounds = tuple(entry) if isinstance(entry, list) and len(entry) == 2 else ("A", "B")
        example = "for example {{low: {}, high: {}}}".format(*bounds)
        raise ValueError(f"must be {{low, high}} or {{choices}}, {example}")
    return entry


SearchRange = Annotated[dict[str, object], BeforeValidator(_range)]
"""``{low, high, log, complement}`` or ``{choices}``; `search_space` checks it."""

# A learning rate is scaled by ratios, and a discount by its horizon 1 / (1 - gamma).
DEFAULT_SEARCH_SPACE: dict[str, SearchRange] = {
    "learning_rate": {"low": 1e-5, "high": 3e-3, "log": True},
    "gamma": {"low": 0.9, "high": 0.9999, "complement": True},
}


def _without_nulls(values: object) -> object:
    # Flatten the nested form first, so that a null weight in it is removed, too.
    values = with_dotted_weights(values)
    if not isinstance(values, dict):
        return values
    # Null means the algorithm's default, as if the key were left out.
    return {name: value for name, value in values.items() if value is not None}


class PayoffsConfig(Model):
    """The table of results that matchmaking reads."""

    half_life_matches: float = Field(5000.0, gt=0.0, le=1e12)
    """After so many matches of a pair, an older result counts half."""


class GhostsConfig(WindowRule, Spread):
    """Frozen copies of policies, kept as opponents."""

    every_agent_steps: Count = 100_000
    """Agent steps of a policy from one ghost to the next."""

    keep: int | None = Field(512, ge=16, le=10**6)
    """Maximum number of ghosts per population; null keeps all. Above it 1/16 are removed, never one
    that something needs."""

    @property
    def thinned_to(self) -> int | None:
        """Number of ghosts that remain when a full pool is thinned; None if it never is."""
        # Remove a sixteenth at once, so that thinning is rare.
        return None if self.keep is None else self.keep - self.keep // 16

    thinning: str = "spread"
    """Rule that says which ones go: ``spread`` keeps the newest, the strongest and an even spread
    through history and strength; ``oldest`` keeps the newest; or ``package.module:Class``."""

    @field_validator("thinning")
    @classmethod
    def _is_known(cls, value: str) -> str:
        return check_kind(value, THINNINGS)


SINK_KINDS = ("tensorboard", "jsonl", *TRACKERS)


class ScheduleEntry(Model):
    """From when on which hyperparameters are in use."""

    agent_steps: int = Field(ge=0, le=10**15)
    """The policy's count at which they begin."""

    hyperparameters: Annotated[
        dict[str, bool | int | float | str], BeforeValidator(with_dotted_weights)
    ] = Field(default_factory=dict)
    """Those that differ from the population's start values, or all."""


class PopulationConfig(Model):
    """The policies that compete for the same agents."""

    agents: tuple[str, ...] | None = None
    """Agents its policies play, globs allowed; default: those with the same spaces."""

    player: str | None = None
    """Player from outside that has its agents for the whole run: a bot, an export or
    ``RUN:player/p003``; nobody is trained for them then. null: policies learn to play them."""

    size: int = Field(8, ge=1, le=10_000)
    """How many policies it has, unless ``player`` has its agents."""

    roles: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    """How many are ``main_exploiter`` and ``league_exploiter``; ``main`` is the rest."""

    network: NetworkConfig = NetworkConfig()
    """The architecture of every policy."""

    normalizer_warm_up: NormalizerWarmUp | None = None
    """Play of a bot that fills new policies' normalizers before the first update; null: none."""

    algorithm: str = "ppo"
    """How its policies learn: ``ppo``, or ``package.module:Name``."""

    algorithm_settings: dict[str, object] = Field(default_factory=dict)
    """Settings of the algorithm, the same for all policies and for good; what is left out has the
    algorithm's default."""

    hyperparameters: Annotated[
        dict[str, bool | int | float | dict[str, object]], BeforeValidator(_without_nulls)
    ] = Field(default_factory=dict)
    """Start values, or schedules by agent steps (`populations.hyperparameter_schedules`); what is
    left out, or null, has the algorithm's default, and ``reward_weights.<component>`` the weight in
    ``environment.reward_weights``."""

    search_space: Annotated[dict[str, SearchRange], BeforeValidator(with_dotted_weights)] = (
        DEFAULT_SEARCH_SPACE
    )
    """Ranges within which PBT may change hyperparameters; ``reward_weights.<component>`` too."""

    pbt: PbtConfig | None = None
    """Keys of the section ``pbt`` that are other for this population; null: none."""

    schedule: tuple[ScheduleEntry, ...] = ()
    """Hyperparameters by agent steps, instead of PBT; ``--schedule-of`` makes it. Empty: none."""

    @property
    def num_policies(self) -> int:
        """Number of its policies; 0 if a player from outside has its agents."""
        return self.size if self.player is None else 0

    @property
    def start_values(self) -> dict[str, Value]:
        """Hyperparameters at 0 agent steps, and settings that PBT changes.

        The configuration must be resolved; then no hyperparameter has the name of a setting.
        """
        values = start_values(self.hyperparameters)
        for name in self.search_space:
            value = self.algorithm_settings.get(name)
            if isinstance(value, bool | int | float | str):
                values[name] = value
        return values

    @property
    def scheduled(self) -> ScheduledValues:
        """Schedules of hyperparameters, if the configuration is resolved."""
        return ScheduledValues.of(self.hyperparameters, self.search_space)

    @field_validator("player")
    @classmethod
    def _one_spelling(cls, player: str | None) -> str | None:
        return None if player is None else canonical_player(player)

    @model_validator(mode="after")
    def _has_normalizers(self) -> PopulationConfig:
        # This key also switches the normalizer of a centralized critic.
        if self.normalizer_warm_up is not None and not self.network.normalize_observations:
            raise ValueError(
                "normalizer_warm_up must be null where network.normalize_observations is false "
                f"(there is nothing to fill), got {self.normalizer_warm_up.model_dump()}"
            )
        return self

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

    kwargs: dict[str, object] = Field(default_factory=dict)
    """Arguments of the environment's factory in matches, beside and before those of training."""

    bots: tuple[str, ...] = ("bot:random",)
    """Players from outside that are rated too: bots, and players of other runs (an export, or
    ``RUN:player/p003``), whose weights are copied at launch; ``bot:random`` is the zero of the
    scale."""

    greedy: bool = False
    """Whether policies play their likeliest actions in matches, as exports do, instead of sampling.
    In a game without chance and without ``random_openings`` two of them then have one game in each
    seating, which counts once."""

    random_openings: RandomOpenings = NO_OPENINGS
    """Random decisions at the start of some matches."""

    @field_validator("bots")
    @classmethod
    def _known_bots(cls, bots: tuple[str, ...]) -> tuple[str, ...]:
        # Use one spelling, or the same bot could have two ratings.
        named = tuple(dict.fromkeys(map(canonical_player, bots)))
        if RANDOM_BOT not in named:
            raise ValueError("bot:random must be among them: it is the zero of the rating scale")
        return named


class ReplaysConfig(Model):
    """Evaluation games that are kept, to be seen again."""

    keep: int = Field(200, ge=0, le=10_000)
    """Most games for each population; 0: none are recorded."""


class AssignmentConfig(Model):
    """How much a learner does before it hears from the controller again."""

    target_s: Seconds = 3.0
    """Seconds that a training assignment should take, at the measured speed."""

    agent_steps: Count | None = None
    """A fixed budget for each policy instead; a deterministic run has one in any case."""

    episodes: int | None = Field(None, ge=1, le=10**9)
    """Whole episodes that each environment plays, against the same opponents; null: episodes go on
    from one assignment to the next, or in a deterministic run as many as come nearest to
    ``agent_steps``, by the length of an episode that is measured at launch."""


class CheckpointsConfig(Model):
    """Checkpoints that stay on disk besides those that something refers to."""

    keep: int | None = Field(3, ge=1, le=10**9)
    """How many of the newest, per policy; null keeps all."""

    milestones_every_agent_steps: Count | None = None
    """Keep one for ever each so many agent steps."""

    export_every_agent_steps: int | None = Field(None, ge=0, le=10**15)
    """Agent steps of a policy from one export to the next; null or 0: none."""

    keep_exports: int | None = Field(None, ge=1, le=10**9)
    """How many of the newest such exports, per policy, and their checkpoints; null keeps all."""

    @property
    def exported_to_keep(self) -> int | None:
        """Number of newest exports of a policy whose checkpoints are retained; None for all."""
        # Retain one more, as the export of the oldest may still be running when the next is due.
        return None if self.keep_exports is None else self.keep_exports + 1


class JournalConfig(Model):
    """Care of the journal's file."""

    keep_detail_hours: float | None = Field(24.0, ge=0.001, le=10**6)
    """Hours of the run after which tallies, ended assignments and events leave the journal for
    files of its archive; null: they stay."""

    backup_every_s: Seconds = Field(600.0, ge=1.0, le=10**7)
    """Least pause between two backups. It is longer where backups would write more than twice as
    much as the run records."""


class RayConfig(Model):
    """Ray's part: where learners run with ``launcher: ray``, and what each of them needs there."""

    address: str | None = Field(None, pattern=r"^(auto|local|[A-Za-z0-9.:\[\]-]+:[0-9]{1,5})$")
    """HOST:PORT of a Ray cluster, or ``auto``: the one that runs here; null: that of RAY_ADDRESS,
    which ``ray job submit`` sets, else ``local``: a Ray of this run's own on this machine."""

    num_cpus: float = Field(1.0, ge=0.0, le=10**6)
    """Processors that a learner needs; Ray places as many learners on a node as fit."""

    num_gpus: float = Field(0.0, ge=0.0, le=10**6)
    """GPUs that a learner needs, 0.5 for half of one."""

    custom: dict[str, Annotated[float, Field(gt=0.0, le=10**9)]] = Field(default_factory=dict)
    """Resources of other names that a learner needs, by which nodes are chosen."""

    cache_mb: int = Field(2048, ge=1, le=10**9)
    """Bound of a learner's copies of checkpoints, in MB, on a node without the run's directory."""


class MetricsConfig(Model):
    """Destinations of figures about learning."""

    sinks: tuple[str, ...] = ("tensorboard", "jsonl")
    """``tensorboard`` (event files), ``jsonl`` (lines of JSON), ``wandb``, ``mlflow``, ``trackio``
    (where users keep their runs), ``package.module:Class``."""

    every_agent_steps: int | None = Field(None, ge=0, le=10**15)
    """Agent steps of a policy for which a curve has one point; null or 0: one per assignment."""

    rotate_mb: int | None = Field(100, ge=1, le=10**6)
    """Size at which ``jsonl`` and ``tensorboard`` begin new files, in 10^6 bytes; null: never."""

    keep_mb: int | None = Field(4000, ge=0, le=10**9)
    """Size of the older files that stay, of each of the two, in 10^6 bytes; null: all stay."""

    @field_validator("sinks")
    @classmethod
    def _known_sinks(cls, sinks: tuple[str, ...]) -> tuple[str, ...]:
        for sink in sinks:
            check_kind(sink, SINK_KINDS)
        if len(set(sinks)) < len(sinks):
            raise ValueError(f"each sink must be named once, got {', '.join(sinks)}")
        return sinks


class StopEvaluation(Model):
    """Result against a player, in evaluation matches, that ends the run."""

    player: str
    """One of ``evaluation.bots``, or a population's ``player``."""

    score: float | None = Field(None, gt=0.0, le=0.999)
    """Points a match (1, 1/2, 0); or ``return``."""

    mean_return: float | None = Field(None, alias="return")
    """Undiscounted return; or ``score``."""

    @field_validator("player")
    @classmethod
    def _one_spelling(cls, player: str) -> str:
        return canonical_player(player)

    @model_validator(mode="after")
    def _one_goal(self) -> StopEvaluation:
        if (self.score is None) == (self.mean_return is None):
            raise ValueError("must have one of score and return, not both or none")
        return self

    @model_serializer
    def _as_written(self) -> dict[str, object]:
        # ``return`` is a keyword in Python, so the attribute has another name than the key.
        return {"player": self.player, self.kind: self.value}

    @property
    def kind(self) -> Literal["score", "return"]:
        """Key of the goal that is set."""
        return "return" if self.score is None else "score"

    @property
    def value(self) -> float:
        """Value of the goal that is set."""
        found = self.mean_return if self.score is None else self.score
        assert found is not None, "one of the two is set"
        return found


class StopConfig(Model):
    """When a run is finished: whichever comes first; null is no limit."""

    agent_steps_per_policy: Count | None = 5_000_000
    """Every active policy has done so many agent steps."""

    agent_steps: Count | None = None
    """The policies have done so many together."""

    duration_s: Seconds | None = None
    """Training has lasted so long: stops, earlier finals and evaluation alone are not counted."""

    rating: float | None = None
    """In every population a policy's rating has reached this for certain: by a lower bound that
    holds however often and at however many policies one looks."""

    evaluation: StopEvaluation | None = None
    """A result against a player from outside has reached a value: by a lower bound of the newest
    matches of a policy's generation that holds however often and at however many policies one
    looks. Until then a third of evaluation's pairs are with that player."""

    success_rate: float | None = Field(None, gt=0.0, le=1.0)
    """Share of a policy's newest episodes whose end has ``infos[agent]["success"]``."""

    success_return: float | None = None
    """Undiscounted return of an agent from which on its episode is a success, whatever the
    environment says of it; null: the environment says."""

    members: Literal["any", "all"] = "any"
    """Whether one policy of each population reaches ``rating``, ``evaluation`` and
    ``success_rate``, or every active policy."""

    @property
    def player(self) -> PlayerId | None:
        """Id of the player of ``evaluation``; None if there is no such goal."""
        return None if self.evaluation is None else external_player_id(self.evaluation.player)


AlertKind = Literal[
    "no_episode_ended",
    "reward_constant",
    "observations_constant",
    "entropy_collapsed",
    "loss_high",
    "kl_high",
    "policy_destroyed",
    "assignments_failing",
    "void_episodes",
    "learner_failing",
    "learners_idle",
    "explore_fell_back",
    "exploit_fell_back",
    "matchmaking_fell_back",
    "thinning_fell_back",
    "pbt_undecided",
    "no_steps",
    "sink_failed",
    "hook_failed",
    "hooks_behind",
    "export_failed",
]
"""Kinds that `populations.controller.monitoring.alerts` raises."""


class AlertsConfig(Model):
    """Consequences of alerts; they are raised in any case."""

    fail: tuple[AlertKind, ...] = ()
    """Kinds of alerts that end the run, with exit code 3."""
