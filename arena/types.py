"""The values that both halves of Arena exchange: ids, references to weights, seatings, tallies.

Torch-free. These things have the same names in YAML, journal, metrics and on screen.

Tests: `tests/arena/wire/test_codec.py`, `tests/populations/records/test_tables.py`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NewType

from msgspec import Meta, Struct

_POLICY = r"[a-z][a-z0-9_]{0,31}/p[0-9]{3,12}"
_BOT = r"bot:(?=.{1,396}\Z)[A-Za-z0-9_.:@/-]+(?:\([ -~]*\))?"
_OUTSIDER = r"outsider:[A-Za-z0-9_.:@/-]{1,200}"
_DIGEST = r"[0-9a-f]{64}"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_SEGMENT = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9@._-]+"

FORMS: dict[str, str] = {}
"""Names of the forms that a text may have, by their patterns: for errors."""


def text_form(what: str, pattern: str) -> Meta:
    """Return a text's form, which the whole text must match."""
    # "$" would also match before a final line break.
    whole = rf"\A(?:{pattern})\Z"
    FORMS[whole] = what
    return Meta(pattern=whole)


PolicyId = NewType("PolicyId", Annotated[str, text_form("a policy", _POLICY)])
"""``player/p003``: population, slash, ``p`` and at least three digits."""

PlayerId = NewType(
    "PlayerId",
    Annotated[str, text_form("a player", rf"{_POLICY}(?:@[0-9]{{12,18}})?|{_BOT}|{_OUTSIDER}")],
)
"""Player: a policy (``player/p003``), a ghost (``player/p003@000000120000``), a bot
(``bot:random``), or an imported player of another run (``outsider:exports/champion``).
"""

Entrant = NewType(
    "Entrant",
    Annotated[
        str, text_form("an entrant", rf"{_DIGEST}|{_POLICY}#[0-9]{{1,12}}|{_BOT}|{_OUTSIDER}")
    ],
)
"""Player in a tally: a weights digest (a frozen player of the run), an id (one from outside), or
``player/p003#2`` (a trainee: policy and generation).
"""

Digest = NewType("Digest", Annotated[str, text_form("a digest", _DIGEST)])
"""64 hexadecimal digits of a sha256."""

PackageVersion = NewType(
    "PackageVersion", Annotated[str, text_form("a version", r"[A-Za-z0-9.+!_-]{1,64}")]
)
"""Version of an installed package: ``2.13.0+cpu``."""

MAX_INTEGER = 2**63 - 1
MAX_CHARACTERS = 16384

LearnerId = NewType("LearnerId", Annotated[str, text_form("a name", _NAME)])
AssignmentId = NewType("AssignmentId", Annotated[int, Meta(ge=0, le=MAX_INTEGER)])

MAX_AGENT_STEPS = 10**15
"""Unreachable number of agent steps: a billion per second for eleven days."""

MAX_UPDATES = 2**53
"""Optimizer steps of a policy; every reader of JSON holds whole numbers up to this one exactly."""

MAX_GENERATION = 2**31 - 1

RunId = Annotated[str, text_form("a name", _NAME)]

StoreKey = Annotated[
    str, text_form("a key in the store", rf"(?=.{{1,512}}\Z){_SEGMENT}(?:/{_SEGMENT})*")
]
"""Directory, relative to the store's root, ``/``-separated, that cannot leave the store."""

Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Generation = Annotated[int, Meta(ge=0, le=MAX_GENERATION)]
AgentSteps = Annotated[int, Meta(ge=0, le=MAX_AGENT_STEPS)]
LearnerUpdates = Annotated[int, Meta(ge=0, le=MAX_UPDATES)]
Text = Annotated[str, Meta(max_length=MAX_CHARACTERS)]

# The bounds refuse infinities and NaN, whose comparisons are false.
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Seconds = Annotated[float, Meta(ge=0.0, le=sys.float_info.max)]

Number = int | Finite
"""Number that stays whole where it is: ``num_epochs: 4`` among hyperparameters is not 4.0."""

Value = bool | Number | Text
"""Value of a hyperparameter, or of a setting that PBT changes, which may be text."""

Hyperparameters = Mapping[str, Value]
"""Hyperparameters by the names of ``interface.md``; integral ones hold an ``int``."""

BOT_PREFIX = "bot:"
OUTSIDER_PREFIX = "outsider:"
RANDOM_BOT = PlayerId("bot:random")


def canonical_digest(value: object) -> Digest:
    """Return the sha256 of the canonical JSON (sorted keys, no spaces) of plain data."""
    # NaN is no JSON, and other programs could not compute the digest.
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return Digest(hashlib.sha256(text.encode()).hexdigest())


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Values that travel together, alone or in others; `arena.codec` reads and writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The agents of one side that belong to one population.

    An environment with one side (cooperation) has two seats, ``home`` and ``away``, with the same
    agents: two players are compared by playing the same seeded episodes one after the other.

    Attributes:
        name: Side's name; ``side/population`` where several populations share the side.
        side: Side whose score the seat shares.
        population: Population whose policies may have the seat.
        agents: Agents that the seat's player controls, in the environment's order.
    """

    name: str
    side: str
    population: str
    agents: tuple[str, ...]


class Document(Part, frozen=True, kw_only=True, omit_defaults=False):
    """Content of a file, which has all its keys, so that a person or another program reads it."""


class Counters(Document, frozen=True, kw_only=True):
    """Position of a policy in its training.

    Attributes:
        generation: Generation of the policy.
        agent_steps: Agent steps so far; never falls.
        learner_updates: Optimizer steps so far; never falls.
    """

    generation: Generation
    agent_steps: AgentSteps
    learner_updates: LearnerUpdates


class WeightsRef(Part, frozen=True, kw_only=True):
    """Reference to frozen weights: their place and their digest.

    Attributes:
        digest: Sha256 of ``weights.safetensors``.
        key: Directory of that file, relative to the store's root, ``/``-separated.
    """

    digest: Digest
    key: StoreKey


class CheckpointRef(Part, frozen=True, kw_only=True):
    """Reference to a published checkpoint: its digest (over all files but the manifest) and
    directory.
    """

    digest: Digest
    key: StoreKey


class Player(Part, frozen=True, kw_only=True):
    """Occupant of a seat.

    Attributes:
        player: Id of a policy, a ghost, a bot or an imported player.
        weights: Frozen weights to play with. None for bots, and for a policy that is a trainee of
            the same assignment (its live weights play).
    """

    player: PlayerId
    weights: WeightsRef | None = None

    @property
    def entrant(self) -> Entrant:
        """Return its name in results while it is frozen: its weights; from outside, its id."""
        if self.weights is None or is_external(self.player):
            return Entrant(self.player)
        return Entrant(self.weights.digest)


class Seating(Part, frozen=True, kw_only=True):
    """One player for each seat, in the order of the environment's seats."""

    players: tuple[Player, ...]

    def entrants(self, trainees: Mapping[str, Entrant]) -> tuple[Entrant, ...]:
        """Return the players' names in results.

        Args:
            trainees: Names of the policies that learn (`trainee_entrant`).
        """
        return tuple(trainees.get(one.entrant, one.entrant) for one in self.players)


class PairScore(Part, frozen=True, kw_only=True):
    """Results between two seats of different sides, seen from ``first``.

    Attributes:
        first: Index of a seat; always smaller than ``second``.
        second: Index of a seat of another side. Of many seats both are the lowest ones of two
            players, and all numbers are sums over the pairs of their seats on different sides
            (`arena.matches.comparisons`).
        wins: Matches in which ``first``'s side scored higher.
        draws: Matches with equal scores.
        losses: Matches in which ``second``'s side scored higher.
        score_sum: Sum of ``first``'s scores, where scores are margins. None: one for a win and half
            for a draw.
        square_sum: Sum of the squares of these scores; None where ``score_sum`` is.
    """

    first: Count
    second: Count
    wins: Count
    draws: Count
    losses: Count
    score_sum: Finite | None = None
    square_sum: Finite | None = None


class SeatOpenings(Part, frozen=True, kw_only=True):
    """First decisions of a seat, the most frequent first; all other matches are the rest.

    Attributes:
        actions: Index of each action (`arena.matches.openings`).
        matches: Matches that began with it.
        points: Sum of the seat's scores in these.
    """

    actions: tuple[Count, ...] = ()
    matches: tuple[Count, ...] = ()
    points: tuple[Finite, ...] = ()


class Tally(Part, frozen=True, kw_only=True):
    """Results of one seating in one assignment, as sent and stored.

    Attributes:
        entrants: Players, one per seat.
        matches: Episodes played to their end.
        pairs: Results for each pair of seats on different sides, or, of many seats, for each two
            players. Empty for cooperation while training, where there is no opponent.
        return_sum: Sum over matches of the mean undiscounted return of each seat's agents. Of many
            seats each one has the mean over its player's.
        return_sum_of_squares: Sum of the squares of these returns, per seat; likewise.
        length_sum: Calls of ``step`` in these matches; in cooperation a match of two players has
            two episodes.
        distinct: Different games among the matches. None: not counted.
        openings: First decisions of each seat; empty: not counted.
    """

    entrants: tuple[Entrant, ...]
    matches: Count
    pairs: tuple[PairScore, ...]
    return_sum: tuple[Finite, ...]
    return_sum_of_squares: tuple[Finite, ...]
    length_sum: Count
    distinct: Count | None = None
    openings: tuple[SeatOpenings, ...] = ()


MAX_GAMES = 8
"""Games that come with one assignment."""

MAX_GAME_BYTES = 64 * 1024
"""Bytes of the actions and digests of a game that is kept."""

GameBytes = Annotated[bytes, Meta(max_length=MAX_GAME_BYTES)]

MAX_GAMES_BYTES = 256 * 1024
"""The same of all games of one assignment."""

SHOWN_BYTES = 4
"""Bytes of the digest of what one turn of a game showed and paid."""


class Game(Part, frozen=True, kw_only=True):
    """Episode of an evaluation, from which it can be played again (`arena.games.recording`).

    Attributes:
        pairing: Index of the pairing whose players played it.
        seats: Indices of the seats that took part: all, in cooperation those of one team.
        seed: Seed of an environment of which this is the first episode.
        steps: Calls of ``step``.
        points: Points of each side (`arena.envs.base.Turn.score`); empty in cooperation.
        returns: Mean undiscounted return of the agents of each of these seats.
        actions: Actions of each step, population after population as the environment takes them
            (int64 or float32, little-endian), compressed by zlib.
        shown: Digests of what the reset and each step showed and paid, `SHOWN_BYTES` each.
    """

    pairing: Count
    seats: tuple[Count, ...]
    seed: Count
    steps: Count
    points: tuple[Finite, ...]
    returns: tuple[Finite, ...]
    actions: GameBytes
    shown: GameBytes

    @property
    def size_bytes(self) -> int:
        """Return the bytes that keeping it takes."""
        return len(self.actions) + len(self.shown)


def population_of(player: str) -> str:
    """Return the population in a policy or ghost id (``player/p003@...`` gives ``player``)."""
    return player.split("/", 1)[0]


def is_bot(player: str) -> bool:
    """Return whether a player or entrant id names a bot."""
    return player.startswith(BOT_PREFIX)


def is_external(player: str) -> bool:
    """Return whether an id is of a player from outside: a bot, or an imported player."""
    return player.startswith((BOT_PREFIX, OUTSIDER_PREFIX))


def trainee_entrant(policy: PolicyId, *, generation: int) -> Entrant:
    """Return the entrant name of a policy that learns while it plays."""
    # The generation is part of the name, because a policy before an exploit counts as another
    # player.
    return Entrant(f"{policy}#{generation}")


def policy_of_trainee(entrant: str) -> tuple[PolicyId, int]:
    """Return policy and generation of the entrant that `trainee_entrant` made."""
    policy, _, generation = entrant.rpartition("#")
    return PolicyId(policy), int(generation)


def is_trainee(entrant: str) -> bool:
    """Return whether an entrant is a policy that learns while it plays (`trainee_entrant`)."""
    return "#" in entrant and not is_bot(entrant)


def ghost_id(policy: PolicyId, *, agent_steps: int) -> PlayerId:
    """Return the player id of a policy's ghost at a number of agent steps."""
    # Twelve digits make a policy's ghosts sort by age as text.
    return PlayerId(f"{policy}@{agent_steps:012d}")
