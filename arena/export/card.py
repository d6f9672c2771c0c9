"""The card of an export: what the policy is, its origin and its strength.

``card.json`` is for programs (and `champion.py`); `arena.export.card_text` writes the same for
people. An export may come from anywhere, so everything is validated when it is read.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from msgspec import Meta, field

from arena.checkpoints.manifest import FileRecord
from arena.codec import from_json, plain, to_json
from arena.config import EnvironmentConfig, NetworkConfig
from arena.environment_spec import (
    AgentSpec,
    ContinuousActions,
    EnvironmentSpec,
    MaskPlace,
    SpaceJson,
)
from arena.errors import CheckpointCorrupt, CheckpointMissing, ConfigError, DecodeError
from arena.export.directory import CARD as CARD
from arena.files import read_regular
from arena.spaces import ActionLayout, ObservationLayout, UnusableSpace
from arena.types import Count, Digest, Document, Finite, Seat, Value, text_form

CARD_FOR_PEOPLE = "card.md"
POLICY = "policy.onnx"
WEIGHTS = "policy.safetensors"
PLAYER = "champion.py"
PAGE = "champion.html"

CHESS = "classic/chess"
"""Beginning of the environment's id of exports that are chess engines."""

ENGINE = "uci.py"
"""Part of those exports."""

MAX_ROUNDING = 1e-6
"""Tolerance for the sum of probabilities, which must be 1."""

# The limit is large, because a space may list the bounds of each of its numbers.
_MAX_CARD_BYTES = 16 << 20

T = TypeVar("T")


class _Part(Document, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Part of a card, which ignores unknown keys, so that later releases may add some."""


class CardEnvironment(_Part, frozen=True, kw_only=True):
    """Environment, complete enough to play in it without the run.

    Attributes:
        id: A PettingZoo registry id, or ``package.module:factory``.
        kwargs: Arguments of its factory.
        api: ``aec`` or ``parallel``.
        agents: All agents, in the environment's order.
        agent_specs: Observation and action space of each agent.
        versions: Versions of the packages that define it.
        sides: Agents that share one score.
        seats: All seats in order.
        outcome: Rule that scores a match.
        populations: Agents by population.
        continuous_actions: Way in which a drawn number is brought within the bounds of a Box.
        possible_agents: All agents that may appear, where the environment does not declare them.
    """

    id: str
    kwargs: dict[str, object]
    api: Literal["aec", "parallel"]
    agents: tuple[str, ...]
    agent_specs: dict[str, AgentSpec]
    versions: dict[str, str]
    sides: dict[str, tuple[str, ...]]
    seats: tuple[Seat, ...]
    outcome: object
    populations: dict[str, tuple[str, ...]]
    continuous_actions: ContinuousActions = "squashed"
    possible_agents: list[str] | None = None

    @property
    def spec(self) -> EnvironmentSpec:
        """Spec of the environment, in the form that the rest of Arena uses."""
        return EnvironmentSpec(
            id=self.id,
            kwargs=self.kwargs,
            api=self.api,
            agents=self.agents,
            agent_specs=self.agent_specs,
            versions=self.versions,
        )


_CONFIGURED = {"id", "kwargs", "sides", "outcome", "continuous_actions", "possible_agents"}


class CardSeat(_Part, frozen=True, kw_only=True):
    """Seat that the policy can have."""

    name: str
    agents: tuple[str, ...]


class CardObservation(_Part, frozen=True, kw_only=True):
    """Observation space, and the shape of one observation: None for a Dict or Tuple."""

    space: dict[str, object]
    shape: tuple[int, ...] | None

    @classmethod
    def from_space(cls, space: SpaceJson) -> CardObservation:
        """Make the entry of a space."""
        layout = ObservationLayout.from_json(space)
        # A nest of 0 means that the space is its only leaf.
        shape = layout.leaves[0].shape if layout.nest == 0 else None
        return cls(space=dict(space), shape=shape)


class CardAction(_Part, frozen=True, kw_only=True):
    """Action space.

    Attributes:
        space: Description of the space.
        num_actions: Number of choices of all categories together.
        start: First choice of a Discrete in the environment; 0 for other spaces.
    """

    space: dict[str, object]
    num_actions: Count
    start: int

    @classmethod
    def from_space(cls, space: SpaceJson) -> CardAction:
        """Make the entry of a space."""
        # The number of choices does not depend on the way of bounding numbers.
        layout = ActionLayout.from_json(space, continuous="squashed")
        start = layout.leaves[0].starts[0] if layout.is_discrete else 0
        return cls(space=dict(space), num_actions=layout.num_logits, start=start)


class CardRating(_Part, frozen=True, kw_only=True):
    """Rating in Elo, ``bot:random`` at 0, with its 95% interval. None: unrated.

    Attributes:
        rating: Rating in Elo.
        rating_low: Lower end of the interval.
        rating_high: Upper end of the interval; None: unrated, or open above.
        open: Whether the interval is open above: nobody took a point from it.
        pair_deviation: Elo by which pairs of the league deviate from their ratings. None: unknown.
        anchor_matches: Evaluation matches against ``bot:random``. None: none.
        anchor_score: Mean score in them, a draw half.
        anchor_predicted: Score that the rating predicts in them.
        mode: Whether policies sampled or played their likeliest actions in the rated matches.
    """

    rating: Finite | None = None
    rating_low: Finite | None = None
    rating_high: Finite | None = None
    open: bool = False
    pair_deviation: Finite | None = None
    anchor_matches: Finite | None = None
    anchor_score: Finite | None = None
    anchor_predicted: Finite | None = None
    mode: Literal["greedy", "sampled"] = "sampled"


class RecordLine(_Part, frozen=True, kw_only=True):
    """Results against one opponent from one seat.

    Attributes:
        opponent: Opponent; it always samples, as two deterministic players would repeat one game.
        mode: Whether the policy samples or plays its likeliest action.
        seat: Seat of the policy.
        matches: Matches played to their ends.
        wins: Matches that the policy won.
        draws: Drawn matches.
        losses: Matches that the policy lost.
        mean_return: Mean return of the policy.
        score: Mean score of the policy, in [0, 1]. None: unknown.
        distinct: Different games among the matches. None: not counted.
    """

    opponent: str
    mode: Literal["greedy", "sampled"]
    seat: str
    matches: Count
    wins: Count
    draws: Count
    losses: Count
    mean_return: Finite
    score: Finite | None = None
    distinct: Count | None = None


class Ancestor(_Part, frozen=True, kw_only=True):
    """Stretch of training that the weights come from: one generation of one policy.

    Attributes:
        policy: Policy that trained.
        generation: Generation of the policy.
        agent_steps: Policy's agent steps at the end of the stretch.
        weights: Digest of the weights at its end.
    """

    policy: str
    generation: int
    agent_steps: int
    weights: Digest


class AnyCard(_Part, frozen=True, kw_only=True):
    """Content of the card of every export.

    Attributes:
        schema_version: ``schema`` in the file; any other one is refused.
        created: Time of writing, UTC, ISO 8601.
        run: Run's id.
        population: Population of the player.
        player: Player's id in that run.
        agents: Agents that it can play.
        seats: Seats that it can have.
        environment: Environment that it was trained in.
        observation: Observation space.
        action: Action space.
        mask: Place of the environment's action mask.
        exploitability: How much more than the game's value a best response wins against it,
            averaged over both seats. None: unknown, as for all but small two-player zero-sum games.
        record: Matches played for this card.
        versions: Versions of the programs that wrote it, of the ONNX operators (``opset``), and
            the oldest onnxruntime that plays it (``onnxruntime_at_least``).
        files: Size and sha256 of every file but this one.
    """

    schema_version: Literal[1] = field(default=1, name="schema")
    created: str
    run: str
    population: str
    player: str
    agents: tuple[str, ...]
    seats: tuple[CardSeat, ...]
    environment: CardEnvironment
    observation: CardObservation
    action: CardAction
    mask: MaskPlace | None
    exploitability: Finite | None = None
    record: tuple[RecordLine, ...]
    versions: dict[str, str]
    # The files are empty until the export is written, because only `write` knows the bytes.
    files: dict[str, FileRecord] = field(default_factory=dict)

    @property
    def environment_config(self) -> EnvironmentConfig:
        """Configuration of the environment, with defaults for keys that concern training only."""
        # `plain` turns tuples into the lists that the configuration requires.
        given = plain(self.environment)
        return EnvironmentConfig.model_validate({key: given[key] for key in _CONFIGURED})

    @property
    def action_layout(self) -> ActionLayout:
        """Layout of actions in rows."""
        continuous = self.environment.continuous_actions
        try:
            return ActionLayout.from_json(self.action.space, continuous=continuous)
        # A card may come from anywhere, so its space may be unusable.
        except UnusableSpace as error:
            raise ConfigError(str(error)) from None

    def to_json(self) -> bytes:
        """Return the bytes of ``card.json``."""
        return f"{to_json(self, indent=2)}\n".encode()


class CardLevel(_Part, frozen=True, kw_only=True):
    """Level of play: a member of the league, or one that plays less well by a temperature.

    Attributes:
        level: Number from 1, the weakest.
        player: Player's id in the run.
        graph: Its graph inside the export; its weights lie beside.
        temperature: Temperature at which it samples its actions.
        agent_steps: Player's agent steps.
        weights_digest: Digest of the weights, without the temperature.
        rating: Rating in Elo by direct play of the levels, the highest having the card's rating.
        rating_low: Lower end of its 95% interval.
        rating_high: Upper end; None: open above, as the champion's.
        score_below: Mean score against the level below. None: it is the lowest.
        matches_below: Matches that this is from.
    """

    level: Annotated[int, Meta(ge=1)]
    player: str
    # The graph is part of a path, so only this form is accepted.
    graph: Annotated[str, text_form("a graph", r"(levels/[0-9]{2}/)?policy\.onnx")]
    temperature: Annotated[float, Meta(gt=0.0, le=sys.float_info.max)]
    agent_steps: Count
    weights_digest: Digest
    rating: Finite
    rating_low: Finite
    rating_high: Finite | None
    score_below: Finite | None = None
    matches_below: Count = 0

    @property
    def weights(self) -> str:
        """Its weights inside the export."""
        return self.graph.removesuffix(POLICY) + WEIGHTS


class Card(AnyCard, frozen=True, kw_only=True):
    """Card of the export of a policy.

    Attributes:
        kind: Not a mixture.
        network: Architecture of the network.
        value: Whether the graph has the output ``value``: not with a centralized critic.
        agent_steps: Player's agent steps.
        learner_updates: Player's optimizer steps.
        generation: Player's generation.
        weights_digest: Digest of the weights, which identifies them in the run's league.
        rating: Rating at the time of the export.
        hyperparameters: Hyperparameters of the last training.
        factors: Factors by which PBT had moved those that have a schedule.
        lineage: Ancestors, the nearest first.
        levels: Levels of play, the weakest first; none unless asked for.
    """

    # A card without a kind is a policy's (`_kind`).
    kind: Literal["policy"] = "policy"
    network: NetworkConfig
    # The value is set when the graph is made (`arena.export.write`).
    value: bool = False
    agent_steps: Count
    learner_updates: Count
    generation: Count
    weights_digest: Digest
    rating: CardRating
    hyperparameters: dict[str, Value]
    factors: dict[str, Finite] = field(default_factory=dict)
    lineage: tuple[Ancestor, ...]
    levels: tuple[CardLevel, ...] = ()

    def __post_init__(self) -> None:
        """Refuse levels that are not numbered from 1."""
        numbers = [level.level for level in self.levels]
        if numbers != [*range(1, len(numbers) + 1)]:
            raise ValueError(f"levels must be numbered from 1, got {numbers}")

    def level(self, number: int) -> CardLevel:
        """Return a level by its number.

        Raises:
            ConfigError: If there is none.
        """
        if not 1 <= number <= len(self.levels):
            has = f"1 to {len(self.levels)}" if self.levels else "none: arena export --levels N"
            raise ConfigError(f"{self.player} has no level {number}; its export has {has}")
        return self.levels[number - 1]

    @property
    def observation_layout(self) -> ObservationLayout:
        """Layout of the network's observations in rows."""
        # The import needs torch, which a reader of cards does without.
        from arena.envs.spaces.agent_id_wrapper import observation_layout

        facts = self.environment.agent_specs[self.agents[0]]
        try:
            return observation_layout(facts, agents=self.agents, network=self.network)
        except UnusableSpace as error:
            raise ConfigError(str(error)) from None


class CardMember(_Part, frozen=True, kw_only=True):
    """Policy of a mixture.

    Attributes:
        directory: Directory of its own export, inside the mixture's.
        player: Player's id in the run.
        probability: Probability of being drawn for an episode.
        agent_steps: Player's agent steps.
        generation: Player's generation.
        weights_digest: Digest of the weights, which identifies them in the run's league.
        rating: Rating at the time of the export.
    """

    # A member's directory is part of a path, so only this form is accepted.
    directory: Annotated[str, text_form("a member's directory", r"members/[0-9]{2}")]
    player: str
    probability: Annotated[float, Meta(gt=0.0, le=1.0)]
    agent_steps: Count
    generation: Count
    weights_digest: Digest
    rating: CardRating


class MixtureCard(AnyCard, frozen=True, kw_only=True):
    """Card of the export of a mixture.

    Attributes:
        kind: A mixture: its members' policies have directories of their own.
        members: Members, the most probable first; one is drawn for each episode.
        num_players: Frozen players of the league that were weighed.
        worst_score: Expected score against the strongest of those opponents, in [0, 1].
        cyclicity: Share of the league's results that no rating can express. None: unknown.
    """

    kind: Literal["mixture"] = "mixture"
    members: Annotated[tuple[CardMember, ...], Meta(min_length=1)]
    num_players: Annotated[int, Meta(ge=1)]
    worst_score: Finite
    cyclicity: Finite | None

    def __post_init__(self) -> None:
        """Refuse probabilities that are no distribution over directories."""
        # fsum computes the sum without rounding errors.
        total = math.fsum(member.probability for member in self.members)
        if abs(total - 1.0) > MAX_ROUNDING:
            raise ValueError(f"probabilities of the members must sum to 1, got {total!r}")
        if len({member.directory for member in self.members}) < len(self.members):
            raise ValueError("every member must have a directory of its own")


def read_card(directory: Path) -> Card:
    """Read the card of the export of a policy.

    Raises:
        CheckpointMissing: If the directory is no export.
        CheckpointCorrupt: If its card is damaged, of another schema, or that of a mixture.
    """
    if (kind := _kind(directory)) != "policy":
        path = directory / CARD
        raise CheckpointCorrupt(f"{path}: kind: must be 'policy', got {kind!r:.50}")
    return _read(directory, Card)


def read_any_card(directory: Path) -> Card | MixtureCard:
    """Read the card of an export, whatever its kind.

    Raises:
        CheckpointMissing: If the directory is no export.
        CheckpointCorrupt: If its card is damaged or of another schema.
    """
    # The kind is read first, so that errors name the fields of the right card.
    if _kind(directory) == "mixture":
        return _read(directory, MixtureCard)
    return _read(directory, Card)


def _kind(directory: Path) -> object:
    """Return the kind of a card before the card is read: fields of the two kinds differ."""
    return _read(directory, dict[str, object]).get("kind", "policy")


def _read(directory: Path, kind: type[T]) -> T:
    path = directory / CARD
    try:
        data = read_regular(path, limit_bytes=_MAX_CARD_BYTES)
    except FileNotFoundError:
        raise CheckpointMissing(f"{directory} is no export: it has no {CARD}") from None
    except OSError as error:
        raise CheckpointCorrupt(f"{path} cannot be read: {error.strerror}") from error
    try:
        return from_json(data, kind)
    except DecodeError as error:
        raise CheckpointCorrupt(f"{path}: {error}") from None
