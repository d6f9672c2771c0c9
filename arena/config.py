"""The torch-free part of the configuration that the playing half needs.

`populations.config.run_config.RunConfig` contains these models and is the only reader of YAML; a
learner receives a `LearnerSetup` as JSON.

Tests: `tests/populations/config/test_run_config.py`,
`tests/populations/config/test_reward_weights.py`.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_serializer,
    model_validator,
)

from arena.bots.ids import FORM, canonical_bot
from arena.environment_spec import ContinuousActions, EnvironmentSpec
from arena.errors import BrokenRules, ConfigError
from arena.types import Digest, Seat, canonical_digest, is_bot

MAX_CORES = 256
"""The most cores of a learner."""


class Model(BaseModel):
    """Model that is frozen, refuses unknown keys, and holds no non-finite numbers."""

    # A misspelled key must not leave a default in force without a word.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RandomOpenings(Model):
    """Episodes that begin with uniformly random decisions, which are not trained on.

    Attributes:
        share: Share of episodes that have a random opening.
        max_decisions: The opening's length is uniform in 1..max_decisions.
    """

    share: float = Field(0.0, ge=0.0, le=1.0)
    max_decisions: int = Field(6, ge=1)


NO_OPENINGS = RandomOpenings()
"""Every episode begins with the players' own decisions."""


class ThresholdOutcome(Model):
    """``side`` wins if the mean return of its agents reaches ``threshold``; else the other side."""

    threshold: float
    side: str


class InfoOutcome(Model):
    """Outcome by ``info[<key>]`` of any agent at the end of the episode.

    The value names the winning side or one of its agents; None or a missing key is a draw. Or it is
    a number: the side whose agents have the higher mean wins. In cooperation it must be a number,
    by which plays are compared.
    """

    info: str


class MarginOutcome(Model):
    """Outcome by how much a side is ahead.

    With u and v the returns of two sides, the first one scores 1/2 + (u - v) / (4 margin), within
    [0, 1]. In a zero-sum game of two sides, where v is -u, ``margin`` is thus the most that a side
    can win. ``auto``: half of the game's range of utilities where that is known, else the largest
    (u - v) / 2 of random play at launch; ``run.yaml`` always has a number.
    """

    margin: Literal["auto"] | Annotated[float, Field(gt=0.0)]


Outcome = Literal["return"] | ThresholdOutcome | InfoOutcome | MarginOutcome | str
"""Rule that scores a match; another string is ``package.module:function``."""


COMPONENT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_/-]{0,63}")
MAX_REWARD_WEIGHT = 1e6

RewardWeight = Annotated[float, Field(ge=-MAX_REWARD_WEIGHT, le=MAX_REWARD_WEIGHT)]


class LessonEnd(Model):
    """End of a lesson: what every active policy has to reach."""

    agent_steps: int | None = Field(None, ge=1, le=10**15)
    """Agent steps of the policy since its start, whatever lessons they were done in."""

    rating: float | None = None
    """Rating that a lower bound exceeds, as for ``stop.rating``."""

    mean_return: float | None = Field(None, alias="return")
    """Mean return of the newest 100 or more training episodes in this lesson."""

    @model_validator(mode="after")
    def _one_measure(self) -> Self:
        given = (self.agent_steps, self.rating, self.mean_return)
        if sum(value is not None for value in given) != 1:
            raise ValueError("must have one of agent_steps, rating and return")
        return self

    @model_serializer
    def _as_written(self) -> dict[str, object]:
        # ``return`` is a word of Python's, so the attribute has another name.
        return {self.measure: self.value}

    @property
    def measure(self) -> Literal["agent_steps", "rating", "return"]:
        """Name of what is to be reached."""
        if self.agent_steps is not None:
            return "agent_steps"
        return "rating" if self.rating is not None else "return"

    @property
    def value(self) -> float:
        """Value to be reached."""
        given = (self.agent_steps, self.rating, self.mean_return)
        return next(value for value in given if value is not None)


class Lesson(Model):
    """Stretch of training in one variant of the environment."""

    until: LessonEnd | None = None
    """End of the lesson; null for the last one, which has none."""

    kwargs: dict[str, object] = {}
    """Arguments of the environment's factory, beside and before ``environment.kwargs``."""


class EnvironmentConfig(Model):
    """Environment of a run, and the rule that scores a match in it.

    Attributes:
        id: A PettingZoo registry id, ``openspiel:game``, or ``package.module:Name`` of a factory or
            of a batched game.
        kwargs: Arguments of the environment's factory.
        curriculum: Lessons of training, one after the other; matches are played in the last one's
            environment. Empty: training and matches have the same one.
        num_envs: Environments that a learner steps as one batch; ``auto`` is replaced by a number
            in ``run.yaml``.
        backend: ``pettingzoo`` steps the environments one by one, ``batched`` all at once as a
            batched game, ``auto`` picks ``batched`` where there is one.
        sides: Agents (globs allowed) that share one score; default: each agent is a side.
        random_openings: Random decisions at the start of some training episodes.
        outcome: Rule that scores a match.
        reward_weights: Components of the reward with their weights. If not empty, a policy is
            trained on the weighted sum of the components that the environment reports in
            ``infos[agent]["reward_components"]`` at each step; unlisted ones are ignored. The
            weights are start values of each policy's hyperparameters ``reward_weights.<name>``.
            Outcomes, returns and ratings still use the environment's own reward.
        possible_agents: All agents that may appear, where the environment does not declare them;
            ``walker_{0..9}`` is ten of them.
        continuous_actions: Way of bringing drawn numbers within the bounds of a Box of actions:
            ``squashed`` by tanh, or ``clipped``. Without bounds a number stays as it is.
        held_memory_mb: Memory of a learner and its workers, in MB, up to which it keeps episodes
            in flight of policies that train later. None: half of the machine's, divided by its
            cores.
        num_env_workers: Processes of a learner that step PettingZoo environments, each an equal
            share of a batch. 0: the learner itself does. Results are the same, bit for bit.
    """

    id: str
    # pydantic copies mutable defaults for each object.
    kwargs: dict[str, object] = {}
    curriculum: tuple[Lesson, ...] = ()
    num_envs: Literal["auto"] | Annotated[int, Field(ge=1, le=65536)] = "auto"
    backend: Literal["auto", "pettingzoo", "batched"] = "auto"
    sides: dict[str, list[str]] | None = None
    random_openings: RandomOpenings = NO_OPENINGS
    # The union is tried from left to right, because the last member takes any text.
    outcome: Annotated[Outcome, Field(union_mode="left_to_right")] = "return"
    reward_weights: dict[str, RewardWeight] = {}
    possible_agents: list[str] | None = None
    continuous_actions: ContinuousActions = "squashed"
    held_memory_mb: int | None = Field(None, ge=1)
    num_env_workers: int = Field(0, ge=0, le=1024)

    @property
    def lessons(self) -> tuple[dict[str, object], ...]:
        """Arguments of the factory in each lesson."""
        return tuple({**self.kwargs, **lesson.kwargs} for lesson in self.curriculum)

    @field_validator("curriculum")
    @classmethod
    def _ends_but_the_last(cls, curriculum: tuple[Lesson, ...]) -> tuple[Lesson, ...]:
        for index, lesson in enumerate(curriculum):
            is_last = index == len(curriculum) - 1
            if is_last and lesson.until is not None:
                raise ValueError(
                    "the last lesson has no until (it lasts to the end of the run, and matches are "
                    f"played in its environment), got {lesson.until.model_dump()} in [{index}]"
                )
            if not is_last and lesson.until is None:
                raise ValueError(
                    "each lesson but the last needs until (agent_steps, rating or return); "
                    f"[{index}] has none"
                )
        if len(curriculum) == 1:
            raise ValueError("needs two lessons or more; environment.kwargs says what one would")
        return curriculum

    @property
    def possible_backend(self) -> Literal["auto", "pettingzoo", "batched"]:
        """Backend; with reward weights only PettingZoo's environments, which report components."""
        # Batched games report no components of rewards.
        return "pettingzoo" if self.reward_weights else self.backend

    @model_validator(mode="after")
    def _components_can_be_reported(self) -> Self:
        # All faults at once: rules between keys belong to no single field.
        faults = [
            f"environment.reward_weights: a component's name must match "
            f"^{COMPONENT_NAME.pattern}$, got {name!r}"
            for name in self.reward_weights
            if not COMPONENT_NAME.fullmatch(name)
        ]
        if self.reward_weights and self.backend == "batched":
            faults.append(
                "environment.backend must be auto or pettingzoo where there are reward_weights "
                "(batched games report no components of rewards), got 'batched'"
            )
        if self.reward_weights and self.id.startswith("openspiel:"):
            faults.append(
                "environment.reward_weights must be empty where OpenSpiel plays (its games report "
                f"no components of rewards), got {self.reward_weights} with id {self.id!r}"
            )
        if faults:
            # A ConfigError would end pydantic's check and hide faults of other keys.
            raise BrokenRules(*faults)
        return self


Channels = Literal["auto", "first", "last"]

CONVOLUTIONAL = ("cnn", "residual_cnn")

ENCODERS = ("auto", "mlp", *CONVOLUTIONAL)


class NetworkConfig(Model):
    """Architecture of an actor-critic.

    Attributes:
        encoder: Encoder from an observation to features before the hidden layers. ``mlp``: none;
            ``cnn``: convolutions over every part with two or three dimensions, strided where it is
            a picture, 3 x 3 where it is a board; ``residual_cnn``: IMPALA's residual ones;
            ``auto``: ``cnn`` for pictures and ``mlp`` for everything else; or
            ``package.module:Class`` of a ``torch.nn.Module``.
        channels: Place of the channels among three dimensions. ``auto``: the dimension left over if
            the other two are equal, else the smaller one of the first and the last.
        hidden_sizes: Widths of the hidden layers.
        core: Recurrent core after the hidden layers: ``gru``, ``lstm``, or ``none``.
        core_size: Number of output features of the core.
        separate_value: Whether the value has an encoder and hidden layers of its own.
        critic: Input of the value while training. ``own``: the policy's observation; ``joint``: the
            observations of all agents of its side; ``state``: the environment's ``state()``. With
            the last two the value has an encoder and hidden layers of its own.
        agent_id: Whether observations end with a one-hot of the deciding agent in its population.
        normalize_observations: Whether to normalize by running statistics, kept in the checkpoint;
            images are scaled to [0, 1] instead. Off is better for observations that are 0/1 planes.
    """

    encoder: str = "auto"
    channels: Channels = "auto"
    hidden_sizes: tuple[Annotated[int, Field(ge=1, le=16384)], ...] = (128, 128)
    core: Literal["none", "gru", "lstm"] = "none"
    core_size: int = Field(128, ge=1, le=16384)
    separate_value: bool = False
    critic: Literal["own", "joint", "state"] = "own"
    agent_id: bool = False
    normalize_observations: bool = True

    @field_validator("encoder")
    @classmethod
    def _known_encoder(cls, encoder: str) -> str:
        # Only the form is checked here: a user's module is imported where it is used.
        if encoder not in ENCODERS and ":" not in encoder:
            raise ValueError(f"must be one of {', '.join(ENCODERS)} or package.module:Class")
        return encoder


class NormalizerWarmUp(Model):
    """Play of a bot in all seats that fills a new policy's normalizers before its first update."""

    agent_steps: int = Field(ge=1, le=10**9)
    """Decisions of the population that are looked at; they do not count as training."""

    player: str = "bot:random"
    """Bot that plays."""

    @field_validator("player")
    @classmethod
    def _one_spelling(cls, player: str) -> str:
        if not is_bot(player):
            raise ValueError(f"must be a bot ({FORM}), got {player!r}")
        return canonical_bot(player)


class PopulationSetup(Model):
    """A learner's view of a population.

    Attributes:
        agents: Agents that its policies play, in the environment's order.
        network: Architecture of every policy.
        algorithm: ``ppo``, or ``package.module:Name``.
        algorithm_settings: Settings of the algorithm; missing ones have their defaults.
        normalizer_warm_up: Play before the first update; None: none.
    """

    agents: tuple[str, ...]
    network: NetworkConfig
    algorithm: str = "ppo"
    algorithm_settings: dict[str, object] = {}
    normalizer_warm_up: NormalizerWarmUp | None = None


class LearnerSetup(Model):
    """Everything that a learner process needs to know before its first assignment.

    Attributes:
        run: Run's id (a UUID), so that a learner never talks to another run's controller.
        root: Store's root as this learner sees it: the run directory.
        launch_directory: Directory put first on ``sys.path`` when ``package.module:name`` is
            resolved.
        environment: Configuration of the environment.
        spec: Spec of the environment.
        sides: Resolved sides: name to agents. One side: cooperation.
        seats: Seats in order; every Seating of an evaluation has one player for each.
        populations: Setup of each population, by name.
        bots: Bots that run.yaml names: a message that names another one makes no learner import it.
        agent_seats: Seats of training where teammates are mixed, one per agent; empty where they
            are the same.
        greedy_matches: Whether frozen policies play their likeliest actions in evaluation.
        match_openings: Random decisions at the start of some evaluation matches.
        success_return: Return of an agent from which on its episode is a success; None: the
            environment says.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        precision: ``auto``, ``float32`` or ``bfloat16``.
        cores: Processes that carry out training together, each with its share of the environments.
    """

    run: str
    root: str
    launch_directory: str
    environment: EnvironmentConfig
    spec: EnvironmentSpec
    sides: dict[str, tuple[str, ...]]
    seats: tuple[Seat, ...]
    populations: dict[str, PopulationSetup]
    bots: tuple[str, ...] = ()
    agent_seats: tuple[Seat, ...] = ()
    greedy_matches: bool = False
    match_openings: RandomOpenings = NO_OPENINGS
    success_return: float | None = None
    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    cores: int = Field(1, ge=1, le=MAX_CORES)

    @property
    def training_seats(self) -> tuple[Seat, ...]:
        """Seats of training assignments: every Seating of one has a player for each."""
        return self.agent_seats or self.seats

    @property
    def num_envs(self) -> int:
        """Environments that a learner steps as one batch.

        Raises:
            ConfigError: If no number has been chosen yet.
        """
        number = self.environment.num_envs
        if number == "auto":
            raise ConfigError("environment.num_envs must be a number for a learner, got 'auto'")
        return number

    @property
    def is_cooperation(self) -> bool:
        """True if the environment has one side, so that nobody has an opponent."""
        return len(self.sides) == 1

    @property
    def ranked_populations(self) -> tuple[str, ...]:
        """Populations that are ranked: all; in cooperation the first, which leads the teams."""
        # A team has one result, which each member's scale would repeat.
        return tuple(self.populations)[: 1 if self.is_cooperation else None]

    @property
    def agents_of(self) -> dict[str, tuple[str, ...]]:
        """Agents by population."""
        return {name: value.agents for name, value in self.populations.items()}

    @property
    def agent_ids(self) -> tuple[str, ...]:
        """Populations whose networks read a one-hot agent id."""
        return tuple(name for name, value in self.populations.items() if value.network.agent_id)

    @property
    def repeats_games(self) -> bool:
        """True if players who draw nothing play the same game each time they meet."""
        return self.greedy_matches and not self.spec.chance and self.match_openings.share == 0.0

    @property
    def reads_state(self) -> bool:
        """True if a value network reads the environment's ``state()``."""
        return any(value.network.critic == "state" for value in self.populations.values())

    @property
    def digest(self) -> Digest:
        """Digest of everything that controller and learner must agree on: all but place
        and device.
        """
        # Learners on other machines see the run elsewhere and compute on other devices and cores.
        # Who steps environments changes nothing, either.
        excluded: dict[str, bool | set[str]] = {
            # A resume may change the bots: learners with an older copy go on with those they know.
            **dict.fromkeys(("root", "launch_directory", "device", "bots", "cores"), True),
            "environment": {"num_env_workers"},
            "spec": {"chance"},
        }
        # A field that a run leaves out is no part of its digest.
        for name in ("agent_seats", "greedy_matches", "match_openings", "success_return"):
            if getattr(self, name) in ((), False, None, NO_OPENINGS):
                excluded[name] = True
        return canonical_digest(self.model_dump(mode="json", exclude=excluded))
