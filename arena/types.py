"""The values that both halves of Arena exchange: ids, references to weights, seatings, tallies.

Torch-free. These things have the same names in YAML, journal, metrics and on screen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

PolicyId = NewType("PolicyId", str)
"""``player/p003``: population, slash, ``p`` and at least three digits."""

PlayerId = NewType("PlayerId", str)
"""A policy (``player/p003``), a ghost (``player/p003@000000120000``), a bot (``bot:random``), or a
player of another run that this one has imported (``outsider:0:exports/champion``)."""

Entrant = NewType("Entrant", str)
"""Who a tally names: a weights digest (frozen players), ``bot:...``, or ``player/p003#2`` (a
trainee: policy and generation)."""

Digest = NewType("Digest", str)
"""64 hexadecimal digits of a sha256."""

LearnerId = NewType("LearnerId", str)
AssignmentId = NewType("AssignmentId", int)

Hyperparameters = Mapping[str, float]
"""Hyperparameters by the names of ``interface.md``; integral ones hold an ``int``."""

BOT_PREFIX = "bot:"
RANDOM_BOT = PlayerId("bot:random")


def canonical_digest(value: object) -> Digest:
    """Sha256 over the canonical JSON (sorted keys, no spaces) of plain data."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return Digest(hashlib.sha256(text.encode()).hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The agents of one side that belong to one population.

    An environment with one side (cooperation) has two seats, ``home`` and ``away``, with the same
    agents: two players are compared by playing the same seeded episodes one after the other.

    Attributes:
        name: The side's name; ``side/population`` where several populations share the side.
        side: The side whose score the seat shares.
        population: Whose policies may sit here.
        agents: The agents the seat's player controls, in the environment's order.
    """

    name: str
    side: str
    population: str
    agents: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsRef:
    """Where frozen weights are and what they must hash to.

    Attributes:
        digest: Sha256 of ``weights.safetensors``.
        key: Directory that holds that file, relative to the store's root, ``/``-separated.
    """

    digest: Digest
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRef:
    """A published checkpoint: its digest (over all files but the manifest) and its directory."""

    digest: Digest
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """Who has a seat.

    Attributes:
        player: A policy, ghost or bot id.
        weights: The frozen weights to play with. None for bots, and for a policy that is a trainee
            of the same assignment (its live weights play).
    """

    player: PlayerId
    weights: WeightsRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """One player for each seat, in the order of the environment's seats."""

    players: tuple[Player, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairScore:
    """Results between two seats of different sides, seen from ``first``.

    Attributes:
        first: Index of a seat; always smaller than ``second``.
        second: Index of a seat of another side.
        wins: Matches in which ``first``'s side scored higher.
        draws: Matches with equal scores.
        losses: Matches in which ``second``'s side scored higher.
        score_sum: Sum of ``first``'s scores, where they say by how much it won or lost; None: one
            for a win and half for a draw.
        square_sum: Sum of the squares of these scores; None where ``score_sum`` is.
    """

    first: int
    second: int
    wins: int
    draws: int
    losses: int
    score_sum: float | None = None
    square_sum: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How matches travel and are stored: one seating in one assignment.

    Attributes:
        entrants: Who played, one per seat.
        matches: Episodes played to their end.
        pairs: Results for each pair of seats on different sides. Empty for cooperation while
            training (there is nobody to compare with).
        return_sum: Per seat, the sum over matches of the mean undiscounted return of its agents.
        return_sum_of_squares: Per seat, the same for squares.
        length_sum: Calls of ``step`` in these matches; in cooperation a match of two players has
            two episodes.
        distinct: Different games among the matches; None: nobody counted.
    """

    entrants: tuple[Entrant, ...]
    matches: int
    pairs: tuple[PairScore, ...]
    return_sum: tuple[float, ...]
    return_sum_of_squares: tuple[float, ...]
    length_sum: int
    distinct: int | None = None


def population_of(player: str) -> str:
    """The population part of a policy or ghost id (``player/p003@...`` gives ``player``)."""
    return player.split("/", 1)[0]


def is_bot(player: str) -> bool:
    """Whether a player or entrant id names a bot."""
    return player.startswith(BOT_PREFIX)


def trainee_entrant(policy: PolicyId, *, generation: int) -> Entrant:
    """The entrant name of a policy that learns while it plays."""
    return Entrant(f"{policy}#{generation}")


def ghost_id(policy: PolicyId, *, agent_steps: int) -> PlayerId:
    """The player id of the ghost of a policy at a count of agent steps."""
    return PlayerId(f"{policy}@{agent_steps:012d}")
