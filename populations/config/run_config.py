"""The configuration of a run: one YAML document, which is checked once and then immutable.

`load_config` reads a user's file, and `resolve_config` fills in what depends on the environment.
``configs/default.yaml`` has the defaults and explains each key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from arena.config import MAX_CORES, EnvironmentConfig, Model
from arena.environment_spec import EnvironmentRequest
from arena.errors import BrokenRules
from arena.wire.address import check_listening
from populations.config.hooks import HooksConfig
from populations.config.overrides import overridden
from populations.config.population_settings import merged
from populations.config.role_settings import RolesConfig
from populations.config.sections import (
    AlertsConfig,
    AssignmentConfig,
    CheckpointsConfig,
    EvaluationConfig,
    GhostsConfig,
    JournalConfig,
    MetricsConfig,
    PayoffsConfig,
    PopulationConfig,
    RayConfig,
    ReplaysConfig,
    StopConfig,
)
from populations.config.validation import Draft, Hints, draft_document, validate_document
from populations.fields import IMPORT_PATH, POPULATION_NAME, Count
from populations.matchmaking.alphastar import AlphastarMatchmaker
from populations.matchmaking.external_players import MAX_NAME, external_player_id
from populations.matchmaking.kinds import KINDS
from populations.matchmaking.settings import MatchmakingConfig
from populations.pbt.exploit import FractionSettings
from populations.pbt.kinds import EXPLOITS, EXPLORES
from populations.pbt.settings import PbtConfig
from populations.preset_files import config_text
from populations.roles import has_exploiters
from populations.rule_kinds import Choice, unread_settings
from populations.thinning.make import THINNINGS
from populations.yaml_documents import read_document

Device = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$")]


class RunConfig(Model):
    """Everything about a run that a user can set. Only ``environment.id`` is required."""

    environment: EnvironmentConfig
    """The environment, and how a match in it is scored."""

    populations: dict[str, PopulationConfig] = Field(default_factory=dict)
    """Populations by name; default: agents with equal spaces form one, named by what they share."""

    matchmaking: MatchmakingConfig = MatchmakingConfig()
    """Against whom a policy trains."""

    payoffs: PayoffsConfig = PayoffsConfig()
    """The table of results that matchmaking reads."""

    ghosts: GhostsConfig = GhostsConfig()
    """Frozen copies of policies, kept as opponents."""

    roles: RolesConfig = RolesConfig()
    """When policies leave ghosts and exploiters start again."""

    pbt: PbtConfig = PbtConfig()
    """Population-based training."""

    evaluation: EvaluationConfig = EvaluationConfig()
    """Matches between frozen players."""

    replays: ReplaysConfig = ReplaysConfig()
    """Evaluation games that are kept, to be seen again."""

    assignment: AssignmentConfig = AssignmentConfig()
    """How much a learner does at a time."""

    checkpoints: CheckpointsConfig = CheckpointsConfig()
    """Checkpoints that stay on disk."""

    launcher: Literal["inline", "local", "ray"] = "local"
    """``local``: learner processes on this machine; ``inline``: one in the controller's own;
    ``ray``: processes where a Ray cluster has room."""

    ray: RayConfig = RayConfig()
    """Ray's part with ``launcher: ray``."""

    learners: Count | dict[str, Count] | None = None
    """Learner processes, or so many for each population; default: cores, at most policies."""

    learner_cores: Literal["auto"] | Annotated[int, Field(ge=1, le=MAX_CORES)] = "auto"
    """Processes of a learner that train one policy together, each with its share of the
    environments; ``auto``: what ``learners`` leaves of the cores where it is null."""

    learner_nice: int = Field(0, ge=0, le=19)
    """Priority that local learners and their workers give up, as the command nice has it."""

    endpoint: str | None = None
    """Address of the controller: null, a Unix socket of this user, or tcp with keys."""

    remote_learners: int = Field(0, ge=0, le=100_000)
    """Keys to make for learners of other machines, one for each that may join."""

    store_endpoint: str | None = None
    """Address of checkpoints for learners of other machines; null: port of ``endpoint`` + 1."""

    device: Device | Annotated[tuple[Device, ...], Field(min_length=1)] = "auto"
    """``auto``, ``cpu``, ``cuda``, ``cuda:1``, or a list of these, dealt to learners in turn."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the products in training; ``auto``: bfloat16 where the hardware has it."""

    journal: JournalConfig = JournalConfig()
    """Care of the journal's file."""

    metrics: MetricsConfig = MetricsConfig()
    """Destinations of figures about learning."""

    alerts: AlertsConfig = AlertsConfig()
    """Consequences of alerts."""

    hooks: HooksConfig = HooksConfig()
    """Functions and commands that are called after events."""

    stop: StopConfig = StopConfig()
    """When the run is finished."""

    deterministic: bool = False
    """Same config and seed: same decisions, results and weights, kills and resumes included."""

    seed: int = Field(1, ge=0, lt=2**63)
    """Everything random derives from it."""

    @field_validator("populations")
    @classmethod
    def _valid_names(cls, populations: dict[str, PopulationConfig]) -> dict[str, PopulationConfig]:
        for name in populations:
            if not POPULATION_NAME.fullmatch(name):
                raise ValueError(f"a name must match ^[a-z][a-z0-9_]{{0,31}}$, not {name!r}")
        return populations

    @property
    def kwargs_of_matches(self) -> dict[str, object]:
        """Arguments of the environment's factory in matches: those of the last lesson, if any."""
        environment = self.environment
        last = environment.lessons[-1] if environment.curriculum else environment.kwargs
        return {**last, **self.evaluation.kwargs}

    @property
    def lessons(self) -> tuple[dict[str, object], ...]:
        """Arguments of the factory in training, by lesson; empty if they are those of matches."""
        environment = self.environment
        if environment.curriculum:
            return environment.lessons
        return (environment.kwargs,) if self.evaluation.kwargs else ()

    def pbt_of(self, population: str) -> PbtConfig:
        """Return the settings of PBT for a population: its own, or the general ones."""
        return self.populations[population].pbt or self.pbt

    @property
    def external_players(self) -> tuple[str, ...]:
        """Return the players from outside without duplicates: bots, and players of other runs.

        A run stores the weights of players of other runs under their positions in this tuple.
        """
        return tuple(dict.fromkeys((*self.matchmaking.bots, *self.rated_players)))

    @property
    def rated_players(self) -> tuple[str, ...]:
        """Return the players from outside that are rated in at least one population."""
        players = (one.player for one in self.populations.values() if one.player is not None)
        # A resume may append to `evaluation.bots`, so these come last.
        return tuple(dict.fromkeys((*players, *self.evaluation.bots)))

    @property
    def learning(self) -> tuple[str, ...]:
        """Names of the populations that have policies."""
        return tuple(name for name, one in self.populations.items() if one.player is None)

    @property
    def num_envs(self) -> int:
        """Environments that a learner steps as one batch, if the configuration is resolved."""
        number = self.environment.num_envs
        assert number != "auto", "`resolve_config` chooses a number"
        return number

    @property
    def sides(self) -> dict[str, tuple[str, ...]]:
        """Agents by side, if the configuration is resolved."""
        return {side: tuple(agents) for side, agents in (self.environment.sides or {}).items()}

    @property
    def agents_of(self) -> dict[str, tuple[str, ...]]:
        """Agents by population, if the configuration is resolved."""
        return {name: one.agents or () for name, one in self.populations.items()}

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices that are assigned to the local learners in turn."""
        return (self.device,) if isinstance(self.device, str) else self.device

    @property
    def reads_state(self) -> bool:
        """Return whether a value network reads the environment's ``state()``."""
        return any(value.network.critic == "state" for value in self.populations.values())

    @property
    def serves_store(self) -> bool:
        """Return whether learners may join that have no access to the run's directory."""
        return self.remote_learners > 0 or self.launcher == "ray"

    @field_validator("endpoint", "store_endpoint")
    @classmethod
    def _valid_endpoint(cls, endpoint: str | None) -> str | None:
        return None if endpoint is None else check_listening(endpoint)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        # Collect all broken rules, as raising at the first one would hide the others.
        faults = list(self._broken_rules())
        if faults:
            raise BrokenRules(*faults)
        return self

    def _broken_rules(self) -> Iterator[str]:
        """Yield a sentence for each broken rule between keys."""
        if self.deterministic and self.stop.duration_s is not None:
            yield (
                "stop.duration_s must be null where deterministic is true (a clock decides "
                f"nothing there), got {self.stop.duration_s!r}"
            )
        if self.deterministic and len({name.partition(":")[0] for name in self.devices}) > 1:
            yield (
                "device must name GPUs only or no GPU where deterministic is true (weights would "
                f"depend on the learner that made them), got {', '.join(self.devices)}"
            )
        if self.launcher == "inline" and self.learners not in (None, 1):
            yield f"learners must be 1 where launcher is inline, got {self.learners!r}"
        yield from self._broken_rules_of_cores()
        if self.launcher == "inline" and self.endpoint is not None:
            yield f"endpoint must be null where launcher is inline, got {self.endpoint!r}"
        if self.launcher != "local" and self.learner_nice:
            yield (
                "learner_nice must be 0 where launcher is not local (only learner processes that "
                f"it starts here have one), got {self.learner_nice}"
            )
        if self.launcher == "ray" and len(self.devices) > 1:
            yield (
                "device must be one where launcher is ray (Ray deals the GPUs of its nodes, "
                f"ray.num_gpus to each learner), got {', '.join(self.devices)}"
            )
        if self.remote_learners and self.endpoint is None:
            yield (
                f"remote_learners is {self.remote_learners}, but endpoint is null: learners of "
                "other machines need a tcp address to connect to"
            )
        if self.store_endpoint is not None and not self.serves_store:
            yield (
                "store_endpoint must be null where remote_learners is 0 and launcher is not ray "
                f"(all learners see the run's directory), got {self.store_endpoint!r}"
            )
        goal = self.stop.evaluation
        if goal is not None and goal.player not in self.rated_players:
            yield (
                "stop.evaluation.player must be one of evaluation.bots or a population's player "
                f"({', '.join(self.rated_players)}), got {goal.player!r}"
            )
        if self.populations and not self.learning:
            players = {name: one.player for name, one in self.populations.items()}
            yield f"populations.NAME.player must be null for one that learns, got {players}"
        named = {external_player_id(name): name for name in self.external_players}
        for name in self.external_players:
            if named[external_player_id(name)] != name:
                yield (
                    f"names of players must differ in letters or digits of their last {MAX_NAME} "
                    f"characters, got {name!r} and {named[external_player_id(name)]!r}"
                )
        if goal is not None and self.evaluation.share == 0.0:
            yield (
                "evaluation.share must be above 0 where stop.evaluation is set (it is about "
                "evaluation matches), got 0.0"
            )
        outcome = self.environment.outcome
        if isinstance(outcome, str) and outcome != "return" and not IMPORT_PATH.fullmatch(outcome):
            yield f"environment.outcome must be {HINTS['environment.outcome']}, got {outcome!r}"

    def _broken_rules_of_cores(self) -> Iterator[str]:
        """Yield a sentence for each broken rule of ``learner_cores``."""
        cores = self.learner_cores
        if cores == "auto" or cores == 1:
            return
        if self.launcher == "inline":
            yield f"learner_cores must be 1 where launcher is inline, got {cores}"
        if any(name.partition(":")[0] == "cuda" for name in self.devices):
            yield (
                "learner_cores must be 1 on a GPU (device, which is not divided), got "
                f"{cores} with {', '.join(self.devices)}"
            )
        if self.environment.num_env_workers:
            yield (
                "learner_cores must be 1 where environment.num_env_workers is above 0 (which step "
                f"the environments of one process), got {cores}"
            )

    def inspection(self, *, launch_directory: str) -> EnvironmentRequest:
        """Return the request for an inspection of the environment, as matches use it."""
        return EnvironmentRequest(
            self.environment.id,
            kwargs=self.kwargs_of_matches,
            launch_directory=launch_directory,
            backend=self.environment.possible_backend,
            possible_agents=self.environment.possible_agents,
            reads_state=self.reads_state,
            asks_chance=self.evaluation.greedy,
        )

    def endless_lessons(self) -> Iterator[str]:
        """Yield a sentence for each lesson that can never end; a resumed run may be past it."""
        limit = self.stop.agent_steps_per_policy
        for index, lesson in enumerate(self.environment.curriculum):
            until, key = lesson.until, f"environment.curriculum[{index}].until"
            if until is None:
                continue
            if until.rating is not None and self.evaluation.share == 0.0:
                yield (
                    f"evaluation.share must be above 0 where {key}.rating is set (it is about "
                    "evaluation matches), got 0.0"
                )
            if until.agent_steps is not None and limit is not None and until.agent_steps >= limit:
                yield (
                    f"{key}.agent_steps must be below stop.agent_steps_per_policy ({limit}), got "
                    f"{until.agent_steps}"
                )


HINTS: Hints = {
    "environment.outcome": (
        "return, {threshold: NUMBER, side: SIDE}, {info: KEY}, {margin: NUMBER above 0 or auto} or "
        "package.module:function"
    ),
    "environment.num_envs": "auto or a number from 1 to 65536",
    "ray.address": "HOST:PORT of a Ray cluster, auto, local or null",
    "learners": "null, a count, or a count for each population",
    "learner_cores": f"auto or a number from 1 to {MAX_CORES}",
    "device": (
        "auto, cpu, cuda or cuda:N, N the number of a GPU (cuda:1), or a list of these, at least "
        "one"
    ),
}


def ignore_notice(notice: str) -> None:
    """Ignore a notice."""


def load_config(
    source: str | Path,
    overrides: Sequence[str] = (),
    *,
    notify: Callable[[str], None] = ignore_notice,
    resumes: bool = False,
) -> RunConfig:
    """Read a configuration from a preset or file, and check it.

    Args:
        source: Name of a preset (``connect_four``) or path of a YAML file.
        overrides: ``KEY=VALUE``, KEY a dotted path, VALUE read as YAML; if a KEY is repeated, the
            last one counts.
        notify: Function that is called with a sentence about each alias.
        resumes: Whether it is for the resume of a run. If so, settings that no chosen rule reads
            are accepted, as ``run.yaml`` has all keys.

    Raises:
        ConfigError: If it cannot be read, has an unknown key or a value that breaks a rule, or is
            new and sets what no chosen rule reads.
    """
    return draft_config(source, overrides, notify=notify, resumes=resumes).require()


def draft_config(
    source: str | Path,
    overrides: Sequence[str] = (),
    *,
    notify: Callable[[str], None],
    resumes: bool = False,
) -> Draft[RunConfig]:
    """Read a configuration like `load_config`, but collect faults and leave out invalid values.

    Raises:
        ConfigError: If it cannot be read at all.
    """
    document = read_document(config_text(source), name=str(source))
    # Overrides are applied before validation, so faults in them get the same messages.
    document = overridden(document, overrides, notify=notify)
    draft = draft_document(RunConfig, document, hints=HINTS)
    config = draft.model
    # If the choice of a rule is invalid, it is unknown which settings are read. At a resume nothing
    # is checked, because run.yaml has every key, including those of rules that were not chosen.
    if resumes or config is None or any(map(_chooses_rules, draft.removed)):
        return draft
    unread = _find_unread_settings(config)
    return replace(draft, faults=(*draft.faults, *unread, *config.endless_lessons()))


def _chooses_rules(path: tuple[str, ...]) -> bool:
    """Return whether a value chooses a rule, or is a population, which may choose rules."""
    is_population = path[0] == "populations" and len(path) <= 2
    return is_population or path[-1] in ("kind", "exploit", "explore", "roles")


def validate_config(document: object) -> RunConfig:
    """Check plain data against the configuration's rules.

    Raises:
        ConfigError: Names the key, the rule and the value.
    """
    return validate_document(RunConfig, document, hints=HINTS)


def _find_unread_settings(config: RunConfig) -> tuple[str, ...]:
    """Return a sentence for each key that the user has changed and that no chosen rule reads.

    Args:
        config: Configuration as loaded, before it is resolved.
    """
    matchmaking, ghosts, populations = config.matchmaking, config.ghosts, config.populations
    matchmaker = Choice("matchmaking.kind", KINDS, matchmaking.kind, own_reads_section=False)
    has_roles = any(has_exploiters(section.roles) for section in populations.values())
    # With exploiters, ghosts are left by rules that read the settings of ``alphastar``.
    also_read = frozenset(AlphastarMatchmaker.model_fields) if has_roles else frozenset[str]()
    faults = [
        *unread_settings(
            matchmaking, prefix="matchmaking", choices=[matchmaker], also_read=also_read
        ),
        *unread_settings(
            ghosts,
            prefix="ghosts",
            choices=[matchmaker, Choice("ghosts.thinning", THINNINGS, ghosts.thinning)],
        ),
        # Without populations, the environment's default ones use the general rules.
        *_unread_of_pbt(config.pbt, populations or {"": PopulationConfig()}),
        *_unread_of_players(populations),
    ]
    # Remove duplicates, as populations with equal sections give equal sentences.
    return tuple(dict.fromkeys(faults))


def _unread_of_players(populations: Mapping[str, PopulationConfig]) -> Iterator[str]:
    """Yield a sentence for each key about learning in a population that has a player instead."""
    for name, population in populations.items():
        if population.player is None:
            continue
        for key in sorted(population.model_fields_set - {"agents", "player", "network"}):
            if getattr(population, key) != PopulationConfig.model_fields[key].get_default(
                call_default_factory=True
            ):
                yield (
                    f"populations.{name}.{key} has no effect where populations.{name}.player is "
                    f"{population.player!r}: nobody learns there"
                )


def _unread_of_pbt(pbt: PbtConfig, populations: Mapping[str, PopulationConfig]) -> Iterator[str]:
    # Evaluation reads these settings with any rule, to find the worst and the best policies.
    also_read = frozenset(FractionSettings.model_fields)
    chosen = list[Choice]()
    for name, population in populations.items():
        own = population.pbt
        section = pbt if own is None else merged(pbt, own)
        # It is enough if the rules of any population read a general key, so collect all rules.
        chosen += _choices(section)
        if own is None:
            continue
        prefix = f"populations.{name}.pbt"
        # Accept keys that equal the general section, as dumps of configurations have all keys.
        shared = {key for key in own.model_fields_set if getattr(own, key) == getattr(pbt, key)}
        choices = _choices(section, prefix=prefix, own=own.model_fields_set)
        yield from unread_settings(
            own, prefix=prefix, choices=choices, also_read=also_read | shared
        )
    yield from unread_settings(pbt, prefix="pbt", choices=chosen, also_read=also_read)


def _choices(section: PbtConfig, *, prefix: str = "pbt", own: Collection[str] = ()) -> list[Choice]:
    """Return the rules that a section names, under the keys that name them.

    Args:
        section: Section, merged with the general one.
        prefix: Dotted name of a population's own section.
        own: Keys that are set in the population's own section.
    """
    return [
        Choice(f"{prefix if key in own else 'pbt'}.{key}", kinds, name)
        for key, kinds, name in (
            ("exploit", EXPLOITS, section.exploit),
            ("explore", EXPLORES, section.explore),
        )
    ]
